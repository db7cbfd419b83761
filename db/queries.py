"""Read models: what screens, reports and judges ask of a store.

Every function takes an open :class:`db.engine.Store` and answers with plain records; grouping and joining happen in
SQL. Times are seconds since the epoch, UTC; values are SI. Superseded attempts are left out unless asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select

from harness.model import Value

from . import samples as codec
from . import tables as t
from .coverage import last_measured, mean_durations
from .engine import Store
from .history import CaseRow, History, Point, cases, history, series
from .incidents import (
    IncidentDetail,
    IncidentRow,
    KnownSeries,
    RegressionRow,
    TriageRow,
    incident,
    incidents,
    known_series,
)

__all__ = [
    "CaseRow",
    "EnvironmentRow",
    "Freshness",
    "History",
    "IncidentDetail",
    "IncidentRow",
    "KnownSeries",
    "MachineRow",
    "MeasurementRow",
    "Point",
    "RegressionRow",
    "RunRow",
    "TriageRow",
    "cases",
    "controls",
    "counts_by_status",
    "environment_of_run",
    "freshness",
    "history",
    "incident",
    "incidents",
    "known_series",
    "last_measured",
    "latest_run",
    "machines",
    "mean_durations",
    "measurements_of_run",
    "row_counts",
    "run",
    "runs",
    "samples",
    "series",
    "statuses_of_run",
]


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run with what it ran on. ``machine`` is the fingerprint."""

    id: str
    suite: str
    reason: str
    revision: str
    commit: str | None
    dirty: bool
    committed_at: float | None
    subject: str
    kernels_hash: str
    machine: str
    device_kind: str
    device_model: str
    environment: str
    host: str
    board_uuid: str
    started_at: float
    finished_at: float | None
    complete: bool
    planned: int
    measured: int
    ruler_version: str
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EnvironmentRow:
    """What surrounded the kernels of a run."""

    hash: str
    python: str
    packages: dict[str, str]
    driver: str
    variables: dict[str, str]
    threads: int
    kernels_hash: str

    def without_kernels(self) -> dict[str, str]:
        """Everything but the kernels as flat text, to find what differs between two runs."""
        flat = {"python": self.python, "driver": self.driver, "threads": str(self.threads)}
        flat |= {f"package {k}": str(v) for k, v in self.packages.items()}
        return flat | {f"variable {k}": str(v) for k, v in self.variables.items()}


@dataclass(frozen=True, slots=True)
class MachineRow:
    """A series identity and how much there is of it."""

    fingerprint: str
    device_kind: str
    device_model: str
    clock_policy: str
    ruler_version: str
    runs: int
    last_started_at: float | None


@dataclass(frozen=True, slots=True)
class MeasurementRow:
    """One measurement of a run with its case and metrics; samples are fetched with :func:`samples`."""

    id: int
    case: CaseRow
    attempt: int
    superseded: bool
    status: str
    detail: str
    started_at: float
    duration_s: float
    stop_reason: str
    operators: list[str]
    telemetry: dict[str, Any]
    discarded: dict[str, int]
    metrics: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Freshness:
    """How new the store is: the run that finished last, and the one that started last."""

    last_finished_run: str | None
    last_finished_at: float | None
    last_started_run: str | None
    last_started_at: float | None


def runs(
    store: Store,
    *,
    limit: int | None = 100,
    suite: str | None = None,
    machine: str | None = None,
    reasons: Collection[str] | None = None,
    complete_only: bool = False,
) -> list[RunRow]:
    """Runs, newest first. ``machine`` is a fingerprint."""
    query = _run_query().order_by(t.Run.started_at.desc(), t.Run.id.desc())
    if suite is not None:
        query = query.where(t.Run.suite == suite)
    if machine is not None:
        # As a subquery, so that the index over (machine, start) serves both the filter and the order.
        query = query.where(
            t.Run.machine_id == select(t.Machine.id).where(t.Machine.fingerprint == machine).scalar_subquery()
        )
    if reasons is not None:
        query = query.where(t.Run.reason.in_(reasons))
    if complete_only:
        query = query.where(t.Run.complete)
    if limit is not None:
        query = query.limit(limit)
    with store.read() as connection:
        return [RunRow(*row) for row in connection.execute(query)]


def run(store: Store, run_id: str) -> RunRow | None:
    """The run with this id."""
    with store.read() as connection:
        row = connection.execute(_run_query().where(t.Run.name == run_id)).first()
    return RunRow(*row) if row else None


def latest_run(
    store: Store, machine: str | None = None, suite: str | None = None, *, complete_only: bool = False
) -> RunRow | None:
    """The run that started last, on this machine and of this suite where they are given."""
    found = runs(store, limit=1, machine=machine, suite=suite, complete_only=complete_only)
    return found[0] if found else None


def environment_of_run(store: Store, run_id: str) -> EnvironmentRow | None:
    """The environment of a run, or None where the run is not stored."""
    e = t.Environment
    query = (
        select(e.hash, e.python, e.packages, e.driver, e.variables, e.threads, e.kernels_hash)
        .join(t.Run, t.Run.environment_id == e.id)
        .where(t.Run.name == run_id)
    )
    with store.read() as connection:
        row = connection.execute(query).first()
    return EnvironmentRow(*row) if row else None


def machines(store: Store) -> list[MachineRow]:
    """All machines, the one that ran last first."""
    m, last = t.Machine, func.max(t.Run.started_at)
    query = (
        select(
            m.fingerprint, m.device_kind, m.device_model, m.clock_policy, m.ruler_version, func.count(t.Run.id), last
        )
        .outerjoin(t.Run, t.Run.machine_id == m.id)
        .group_by(m.id)
        .order_by(last.desc().nulls_last(), m.id)
    )
    with store.read() as connection:
        return [MachineRow(*row) for row in connection.execute(query)]


def measurements_of_run(store: Store, run_id: str, *, superseded: bool = False) -> list[MeasurementRow]:
    """Measurements of a run in the order they were made, with parameters and metrics."""
    m, c, v = t.Measurement, t.Case, t.MetricValue
    this_run = m.run_id == select(t.Run.id).where(t.Run.name == run_id).scalar_subquery()
    wanted = [this_run] if superseded else [this_run, m.superseded.is_(False)]
    query: Any = (
        select(
            *(m.id, m.attempt, m.superseded, m.status, m.detail, m.started_at, m.duration_s, m.stop_reason),
            *(m.operators, m.telemetry, m.discarded),
            *(c.key, c.benchmark, c.version, c.operation, c.backend, c.params, c.label, c.weight),
        )
        .join(c, c.id == m.case_id)
        .where(*wanted)
        .order_by(m.started_at, m.id)
    )
    values = (
        select(v.measurement_id, t.Metric.name, v.value, v.low, v.high, v.n)
        .join(m, m.id == v.measurement_id)
        .join(t.Metric, t.Metric.id == v.metric_id)
        .where(*wanted)
        .order_by(v.measurement_id, v.metric_id)
    )
    with store.read() as connection:
        metrics: dict[int, dict[str, Value]] = {}
        for row in connection.execute(values):
            metrics.setdefault(row[0], {})[row[1]] = Value(row[2], row[3], row[4], row[5])
        return [_measurement(row, metrics.get(row[0], {})) for row in connection.execute(query)]


def samples(store: Store, measurement_id: int, metric: str | None = None) -> dict[str, dict[str, list[float]]]:
    """Raw samples of a measurement: ``{"samples": {metric: values}, "warmup": {metric: values}}``.

    With ``metric``, that one alone. Empty where nothing was sampled or the measurement is not stored.
    """
    with store.read() as connection:
        data = connection.execute(select(t.Measurement.samples).where(t.Measurement.id == measurement_id)).scalar()
    kept, warmup = codec.decode(data)
    if metric is not None:
        kept, warmup = ({k: v for k, v in group.items() if k == metric} for group in (kept, warmup))
    return {"samples": kept, "warmup": warmup}


def counts_by_status(store: Store, run_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """For each run id: status -> number of cases."""
    m = t.Measurement
    query = (
        select(t.Run.name, m.status, func.count())
        .join(m, m.run_id == t.Run.id)
        .where(t.Run.name.in_(run_ids), m.superseded.is_(False))
        .group_by(t.Run.name, m.status)
        .order_by(t.Run.name, m.status)
    )
    out: dict[str, dict[str, int]] = {name: {} for name in run_ids}
    with store.read() as connection:
        for name, status, count in connection.execute(query):
            out[name][status] = count
    return out


def statuses_of_run(store: Store, run_id: str) -> dict[str, str]:
    """Case key -> status, of the attempts that stand; what a resumed run need not measure again."""
    m = t.Measurement
    query = (
        select(t.Case.key, m.status)
        .join(m, m.case_id == t.Case.id)
        .join(t.Run, t.Run.id == m.run_id)
        .where(t.Run.name == run_id, m.superseded.is_(False))
    )
    with store.read() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def controls(store: Store, run_ids: Sequence[str]) -> dict[str, dict[str, list[Value]]]:
    """For each run id: control metric -> its values in the order they were recorded."""
    v = t.ControlValue
    query = (
        select(t.Run.name, t.Metric.name, v.value, v.low, v.high, v.n)
        .join(v, v.run_id == t.Run.id)
        .join(t.Metric, t.Metric.id == v.metric_id)
        .where(t.Run.name.in_(run_ids))
        .order_by(v.run_id, v.metric_id, v.ordinal)
    )
    out: dict[str, dict[str, list[Value]]] = {name: {} for name in run_ids}
    with store.read() as connection:
        for name, metric, value, low, high, n in connection.execute(query):
            out[name].setdefault(metric, []).append(Value(value, low, high, n))
    return out


def freshness(store: Store) -> Freshness:
    """When data last came in."""
    finished = select(t.Run.name, t.Run.finished_at).where(t.Run.finished_at.is_not(None))
    started = select(t.Run.name, t.Run.started_at).order_by(t.Run.started_at.desc()).limit(1)
    with store.read() as connection:
        first = connection.execute(finished.order_by(t.Run.finished_at.desc()).limit(1)).first()
        second = connection.execute(started).first()
    return Freshness(*(first or (None, None)), *(second or (None, None)))


def _measurement(row: Any, metrics: dict[str, Value]) -> MeasurementRow:
    # Empty JSON columns are NULL in the store.
    nested = (row[8] or [], row[9] or {}, row[10] or {})
    fields: tuple[Any, ...] = (row[0], CaseRow(*row[11:]), *row[1:8], *nested, metrics)
    return MeasurementRow(*fields)


def _run_query() -> Any:
    r, v, m, e = t.Run, t.Revision, t.Machine, t.Environment
    return (
        select(
            *(r.name, r.suite, r.reason, v.name, v.commit, v.dirty, v.committed_at, v.subject, v.kernels_hash),
            *(m.fingerprint, m.device_kind, m.device_model, e.hash, r.host, r.board_uuid),
            *(r.started_at, r.finished_at, r.complete, r.planned, r.measured, r.ruler_version, r.options),
        )
        .join(v, v.id == r.revision_id)
        .join(m, m.id == r.machine_id)
        .join(e, e.id == r.environment_id)
    )


def row_counts(store: Store) -> dict[str, int]:
    """Rows per kind of record."""
    models = {
        "machines": t.Machine, "environments": t.Environment, "revisions": t.Revision, "runs": t.Run, "cases": t.Case,
        "measurements": t.Measurement, "metric values": t.MetricValue, "incidents": t.Incident,
    }  # fmt: skip
    with store.read() as connection:
        return {
            name: connection.execute(select(func.count()).select_from(m)).scalar() or 0 for name, m in models.items()
        }
