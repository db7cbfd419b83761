"""Read models made for screens: paged, aggregated in SQL, and no wider than what is shown.

As in :mod:`db.queries`: every function takes an open store, times are seconds since the epoch, values are SI,
machines are fingerprints, and attempts that another one stands for are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, String, and_, case, cast, exists, func, or_, select

from harness.model import TriageState, Value

from . import tables as t
from .atlas import AtlasPage, AtlasRow, atlas
from .engine import Store
from .health import Coverage, EnvironmentStep, Trouble, case_columns, coverage, environment_steps, troubles
from .history import CaseRow, cases
from .incidents import IncidentRow, _incident_query
from .retries import RetryCell, retries

__all__ = [
    "AtlasPage",
    "AtlasRow",
    "Attempt",
    "CaseValues",
    "Coverage",
    "EnvironmentStep",
    "Holdings",
    "IncidentPage",
    "Pair",
    "RetryCell",
    "Trouble",
    "atlas",
    "attempt",
    "benchmarks_of_run",
    "case_values",
    "coverage",
    "environment_steps",
    "holdings",
    "incident_page",
    "incidents_of_cases",
    "mark",
    "pairs",
    "retries",
    "troubles",
]

#: What needs people comes first.
_URGENCY = (
    TriageState.NEW, TriageState.CONFIRMED, TriageState.SUSPECT, TriageState.ACKNOWLEDGED, TriageState.EXPECTED,
    TriageState.FIXED, TriageState.FALSE_POSITIVE, TriageState.DISMISSED,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class IncidentPage:
    """One page of incidents, and how many there are under the same filters."""

    rows: list[IncidentRow]
    total: int


@dataclass(frozen=True, slots=True)
class Holdings:
    """What there is to choose from. ``incidents`` counts by state; ``demo``: a run belongs to a demonstration."""

    runs: int
    incidents: dict[str, int]
    incident_backends: list[str]
    incident_machines: list[tuple[str, str]]
    backends: list[str]
    operations: list[str]
    benchmarks: list[str]
    metrics: list[str]
    demo: bool


@dataclass(frozen=True, slots=True)
class CaseValues:
    """A case in one run with the metrics asked for."""

    case: CaseRow
    status: str
    measurement_id: int
    values: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Pair:
    """A case in two runs; a side is None where it was not part of that run or gave no number."""

    case: CaseRow
    base: Value | None
    head: Value | None
    base_status: str
    head_status: str

    @property
    def ratio(self) -> float | None:
        """Head over base."""
        if self.base is None or self.head is None or self.base.value == 0:
            return None
        return self.head.value / self.base.value


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one measurement tells beyond its numbers."""

    measurement_id: int
    status: str
    detail: str
    operators: list[str]
    telemetry: dict[str, Any]
    discarded: dict[str, int]
    stop_reason: str


def mark(store: Store) -> str:
    """A text that changes with whatever is ingested, judged or triaged; the key of what screens keep."""

    def count(model: Any) -> Any:
        return select(func.count()).select_from(model).scalar_subquery()

    def last(column: Any) -> Any:
        return select(func.max(column)).scalar_subquery()

    # The count of measurements would read them all; their largest key is enough, since keys only grow.
    query = select(
        *(count(t.Run), last(t.Run.id), last(t.Measurement.id), select(func.sum(t.Run.measured)).scalar_subquery()),
        *(last(t.Run.finished_at), count(t.Incident), last(t.Incident.updated_at), last(t.TriageEvent.id)),
        *(count(t.Regression), last(t.Regression.id), last(t.Incident.owner), last(t.Incident.trigger_text)),
    )
    with store.read() as connection:
        found = connection.execute(query).one()
    files = ""
    if store.path is not None:
        # A file that was put in the place of another may hold the same numbers.
        for path in (store.path, store.path.with_name(store.path.name + "-wal")):
            if path.exists():
                stat = path.stat()
                files += f":{stat.st_ino}.{stat.st_size}.{stat.st_mtime_ns}"
    return ":".join(map(str, found)) + files


def holdings(store: Store) -> Holdings:
    """What the store holds, for filters and for telling a demonstration apart."""
    i, c = t.Incident, t.Case
    of_incidents = select(c.backend).join(t.Regression, t.Regression.case_id == c.id).distinct().order_by(c.backend)
    on = select(t.Machine.fingerprint, t.Machine.device_model).where(exists().where(i.machine_id == t.Machine.id))
    with store.read() as connection:

        def column(query: Any) -> list[Any]:
            return list(connection.execute(query).scalars())

        return Holdings(
            runs=connection.execute(select(func.count()).select_from(t.Run)).scalar() or 0,
            incidents={row[0]: row[1] for row in connection.execute(select(i.state, func.count()).group_by(i.state))},
            incident_backends=column(of_incidents),
            incident_machines=[(row[0], row[1]) for row in connection.execute(on)],
            backends=column(select(c.backend).distinct().order_by(c.backend)),
            operations=column(select(c.operation).distinct().order_by(c.operation)),
            benchmarks=column(select(c.benchmark).distinct().order_by(c.benchmark)),
            metrics=column(select(t.Metric.name).order_by(t.Metric.id)),
            demo=bool(column(select(t.Run.id).where(t.Run.options["demo"].as_boolean()).limit(1))),
        )


def incident_page(
    store: Store,
    *,
    states: Collection[str] | None = None,
    backend: str | None = None,
    machine: str | None = None,
    words: str = "",
    limit: int = 50,
    offset: int = 0,
) -> IncidentPage:
    """Incidents under filters, those that need people first, the dearest of these before others.

    ``words`` must each occur in what the row shows.
    """
    i, g = t.Incident, t.Regression
    wanted: list[ColumnElement[bool]] = []
    if states is not None:
        wanted.append(i.state.in_(states))
    if machine is not None:
        wanted.append(i.machine_id == select(t.Machine.id).where(t.Machine.fingerprint == machine).scalar_subquery())
    if backend is not None:
        wanted.append(
            exists().where(g.incident_id == i.id, g.case_id == t.Case.id, t.Case.backend == backend).correlate(i)
        )
    for word in words.split():
        bad = select(t.Revision.name).where(t.Revision.id == i.first_bad_revision_id).scalar_subquery()
        shown = (i.id, i.title, i.trigger_text, i.owner, func.coalesce(bad, ""))
        wanted.append(or_(*(cast(column, String).icontains(word, autoescape=True) for column in shown)))
    urgency = case({s.value: n for n, s in enumerate(_URGENCY)}, value=i.state, else_=len(_URGENCY))
    lost = func.coalesce(i.evidence["lost_s"].as_float(), 0.0)
    query = _incident_query().where(*wanted).order_by(urgency, lost.desc(), i.updated_at.desc(), i.id)
    query = query.limit(limit).offset(offset)
    with store.read() as connection:
        total = connection.execute(select(func.count()).select_from(i).where(*wanted)).scalar() or 0
        return IncidentPage([IncidentRow(*row) for row in connection.execute(query)], total)


def case_values(
    store: Store,
    run_id: str,
    metrics: Sequence[str],
    *,
    benchmark: str | None = None,
    operation: str | None = None,
    without: Collection[str] = (),
    limit: int | None = None,
) -> list[CaseValues]:
    """Cases of a run with some metrics, in the order in which the store met them; ``without`` leaves statuses out."""
    m, c, v = t.Measurement, t.Case, t.MetricValue
    this = m.run_id == select(t.Run.id).where(t.Run.name == run_id).scalar_subquery()
    wanted: list[ColumnElement[bool]] = [this, m.superseded.is_(False), *_of(benchmark, operation)]
    if without:
        wanted.append(m.status.not_in(without))
    query: Any = select(m.id, m.status, *case_columns()).join(c, c.id == m.case_id).where(*wanted).order_by(c.id)
    if limit is not None:
        query = query.limit(limit)
    values = (
        select(v.measurement_id, t.Metric.name, v.value, v.low, v.high, v.n)
        .join(m, m.id == v.measurement_id)
        .join(c, c.id == m.case_id)
        .join(t.Metric, t.Metric.id == v.metric_id)
        .where(*wanted, t.Metric.name.in_(metrics))
    )
    with store.read() as connection:
        out = [CaseValues(CaseRow(*r[2:]), r[1], r[0], {}) for r in connection.execute(query)]
        if limit is not None:
            # The page is in the order of the cases, so it ends where its last case does.
            last = out[-1].case.key if out else ""
            values = values.where(c.id <= select(t.Case.id).where(t.Case.key == last).scalar_subquery())
        held = {x.measurement_id: x.values for x in out}
        for row in connection.execute(values):
            if row[0] in held:
                held[row[0]][row[1]] = Value(row[2], row[3], row[4], row[5])
    return out


def benchmarks_of_run(store: Store, run_id: str) -> dict[str, int]:
    """Benchmark -> cases of it in a run, whatever became of them."""
    m, c = t.Measurement, t.Case
    query = (
        select(c.benchmark, func.count())
        .join(m, m.case_id == c.id)
        .where(m.run_id == select(t.Run.id).where(t.Run.name == run_id).scalar_subquery(), m.superseded.is_(False))
        .group_by(c.benchmark)
        .order_by(c.benchmark)
    )
    with store.read() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def pairs(
    store: Store, metric: str, base_run: str, head_run: str, *, benchmarks: Collection[str] | None = None
) -> list[Pair]:
    """Every case of either run with its value in both."""
    m, c, v = t.Measurement, t.Case, t.MetricValue
    wanted = [] if benchmarks is None else [c.benchmark.in_(benchmarks)]

    def side(run: str, *columns: Any) -> Any:
        return (
            select(m.status, v.value, v.low, v.high, v.n, *columns)
            .join(c, c.id == m.case_id)
            .outerjoin(v, and_(v.measurement_id == m.id, v.metric_id == which))
            .where(m.run_id == select(t.Run.id).where(t.Run.name == run).scalar_subquery(), m.superseded.is_(False))
            .where(*wanted)
            .order_by(c.id)
        )

    which = select(t.Metric.id).where(t.Metric.name == metric).scalar_subquery()
    with store.read() as connection:
        # Of the base only what differs is held: the parameters of its cases are those of the head's.
        before = {row[5]: (row[0], _value(row)) for row in connection.execute(side(base_run, c.key))}
        out = []
        for row in connection.execute(side(head_run, *case_columns())):
            status, value = before.pop(row[5], ("", None))
            out.append(Pair(CaseRow(*row[5:]), value, _value(row), status, row[0]))
    left = cases(store, list(before))
    return out + [Pair(left[key], value, None, status, "") for key, (status, value) in before.items()]


def _value(row: Any) -> Value | None:
    return None if row[1] is None else Value(row[1], row[2], row[3], row[4])


def attempt(store: Store, run_id: str, case_key: str) -> Attempt | None:
    """The attempt that stands for a case in a run."""
    m = t.Measurement
    query = (
        select(m.id, m.status, m.detail, m.operators, m.telemetry, m.discarded, m.stop_reason)
        .join(t.Run, t.Run.id == m.run_id)
        .join(t.Case, t.Case.id == m.case_id)
        .where(t.Run.name == run_id, t.Case.key == case_key, m.superseded.is_(False))
    )
    with store.read() as connection:
        row = connection.execute(query).first()
    return Attempt(row[0], row[1], row[2], row[3] or [], row[4] or {}, row[5] or {}, row[6]) if row else None


def incidents_of_cases(store: Store, case_keys: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Case key -> (incident id, state) of the incidents that hold it."""
    i, g = t.Incident, t.Regression
    query = (
        select(t.Case.key, i.id, i.state)
        .join(g, g.case_id == t.Case.id)
        .join(i, i.id == g.incident_id)
        .where(t.Case.key.in_(case_keys))
        .order_by(i.opened_at.desc())
        .distinct()
    )
    out: dict[str, list[tuple[str, str]]] = {}
    with store.read() as connection:
        for key, incident, state in connection.execute(query.add_columns(i.opened_at)).columns(0, 1, 2):
            out.setdefault(key, []).append((incident, state))
    return out


def _of(benchmark: str | None, operation: str | None) -> list[ColumnElement[bool]]:
    pairs = ((t.Case.benchmark, benchmark), (t.Case.operation, operation))
    return [column == value for column, value in pairs if value is not None]
