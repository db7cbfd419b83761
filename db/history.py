"""Series: the same case, metric and machine over runs, as points for screens and as arrays for judging."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, and_, select

from . import tables as t
from .engine import Store

_IN_LIST = 1000


@dataclass(frozen=True, slots=True)
class CaseRow:
    """A case as it is stored; ``params`` are the parameters of its workload."""

    key: str
    benchmark: str
    version: str
    operation: str
    backend: str
    params: dict[str, Any]
    label: str
    weight: float

    @property
    def columns(self) -> dict[str, Any]:
        """Parameters as a row: backend, operation, benchmark, then shapes."""
        return {"backend": self.backend, "operation": self.operation, "benchmark": self.benchmark, **self.params}


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a series. ``value`` is None where the status is not ``ok`` or the metric was not taken."""

    run_id: str
    revision: str
    started_at: float
    value: float | None
    low: float | None
    high: float | None
    n: int | None
    status: str
    measurement_id: int


@dataclass(frozen=True)
class History:
    """All series of one metric on one machine: C cases by R runs, runs in order of their start.

    ``value``, ``low`` and ``high`` are float64 [C, R], NaN where nothing is known; ``n`` is int32 [C, R]; ``status``
    is int8 [C, R], an index into ``statuses``, -1 where the case was not part of the run; ``measurement_id`` is
    int64 [C, R], 0 where there is none. ``started_at`` is float64 [R].
    """

    metric: str
    machine: str
    cases: list[CaseRow]
    run_ids: list[str]
    revisions: list[str]
    started_at: NDArray[np.float64]
    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    n: NDArray[np.int32]
    status: NDArray[np.int8]
    statuses: list[str]
    measurement_id: NDArray[np.int64]

    def row(self, case_key: str) -> int:
        """Index of a case. Raises ``KeyError`` where it has no measurement here."""
        for i, case in enumerate(self.cases):
            if case.key == case_key:
                return i
        raise KeyError(case_key)


def cases(store: Store, keys: Sequence[str] | None = None) -> dict[str, CaseRow]:
    """Cases by key; all of them where ``keys`` is None. Unknown keys are left out."""
    with store.read() as connection:
        if keys is None:
            found = connection.execute(_case_query().order_by(t.Case.id)).all()
        else:
            parts = [keys[i : i + _IN_LIST] for i in range(0, len(keys), _IN_LIST)]
            found = [row for p in parts for row in connection.execute(_case_query().where(t.Case.key.in_(p)))]
    return {row[1]: CaseRow(*row[1:]) for row in found}


def series(
    store: Store, metric: str, machine: str, cases: Collection[str] | None = None, *, until_run: str | None = None
) -> dict[str, list[Point]]:
    """For each case key: its points in order of run start, failures included.

    ``cases`` are case keys, None for all that ran on ``machine`` (a fingerprint); ``until_run`` is the last run taken.
    """
    m, v, r = t.Measurement, t.MetricValue, t.Run
    metric_id = select(t.Metric.id).where(t.Metric.name == metric).scalar_subquery()
    query = (
        select(t.Case.key, r.name, t.Revision.name, r.started_at, v.value, v.low, v.high, v.n, m.status, m.id)
        .join(m, m.case_id == t.Case.id)
        .join(r, r.id == m.run_id)
        .join(t.Revision, t.Revision.id == r.revision_id)
        .outerjoin(v, and_(v.measurement_id == m.id, v.metric_id == metric_id))
        .where(m.superseded.is_(False))
        .order_by(m.case_id, r.started_at, r.id)
    )
    out: dict[str, list[Point]] = {}
    wanted = None if cases is None else sorted(cases)
    with store.read() as connection:
        query = query.where(*_on_machine(machine), *_until(connection, until_run))
        parts = [None] if wanted is None else [wanted[i : i + _IN_LIST] for i in range(0, len(wanted), _IN_LIST)]
        for part in parts:
            for key, *point in connection.execute(query if part is None else query.where(t.Case.key.in_(part))):
                out.setdefault(key, []).append(Point(*point))
    return out


def history(
    store: Store,
    machine: str,
    metric: str,
    *,
    until_run: str | None = None,
    max_runs: int | None = None,
    reasons: Collection[str] | None = None,
) -> History:
    """All series of ``metric`` on ``machine`` (a fingerprint) up to and including ``until_run``, as arrays.

    ``max_runs`` keeps the newest; ``reasons`` limits to runs made for these reasons (``until_run`` is always kept).
    Raises ``KeyError`` where ``until_run`` is not stored.
    """
    m, v, r = t.Measurement, t.MetricValue, t.Run
    with store.read() as connection:
        run_query = (
            select(r.id, r.name, t.Revision.name, r.started_at)
            .join(t.Revision, t.Revision.id == r.revision_id)
            .where(*_on_machine(machine), *_until(connection, until_run))
            .order_by(r.started_at.desc(), r.id.desc())
        )
        if reasons is not None:
            run_query = run_query.where(r.reason.in_(reasons) | (r.name == (until_run or "")))
        if max_runs is not None:
            run_query = run_query.limit(max_runs)
        runs = connection.execute(run_query).all()[::-1]
        metric_id = connection.execute(select(t.Metric.id).where(t.Metric.name == metric)).scalar() or 0
        codes: dict[str, int] = {}
        columns = []
        for run in runs:
            # One query a run: its rows lie together, and no more than one run is held as Python objects.
            query = (
                select(m.case_id, m.id, m.status, v.value, v.low, v.high, v.n)
                .outerjoin(v, and_(v.measurement_id == m.id, v.metric_id == metric_id))
                .where(m.run_id == run.id, m.superseded.is_(False))
            )
            columns.append(_columns(connection.execute(query).all(), codes))
        ids = np.unique(np.concatenate([c[0] for c in columns])) if columns else np.empty(0, np.int64)
        found = _cases_of_runs(connection, [run.id for run in runs])
    shape = (len(ids), len(runs))
    value, low, high = (np.full(shape, np.nan) for _ in range(3))
    n, status = np.zeros(shape, np.int32), np.full(shape, -1, np.int8)
    measurement_id = np.zeros(shape, np.int64)
    targets: list[NDArray[Any]] = [measurement_id, status, value, low, high, n]
    for j, column in enumerate(columns):
        at = np.searchsorted(ids, column[0])
        for target, source in zip(targets, column[1:], strict=True):
            target[at, j] = source
    return History(
        metric=metric,
        machine=machine,
        cases=[found[i] for i in ids.tolist()],
        run_ids=[run[1] for run in runs],
        revisions=[run[2] for run in runs],
        started_at=np.array([run[3] for run in runs], np.float64),
        value=value,
        low=low,
        high=high,
        n=n,
        status=status,
        statuses=list(codes),
        measurement_id=measurement_id,
    )


def _columns(rows: Sequence[Any], codes: dict[str, int]) -> list[NDArray[Any]]:
    """Rows as arrays: case id, measurement id, status code, value, low, high, n; unknown statuses join ``codes``."""
    case, measurement, status, value, low, high, n = zip(*rows, strict=True) if rows else ((),) * 7
    return [
        np.array(case, np.int64),
        np.array(measurement, np.int64),
        np.array([codes.setdefault(s, len(codes)) for s in status], np.int8),
        *(np.array(x, np.float64) for x in (value, low, high)),  # None becomes NaN
        np.array([x or 0 for x in n], np.int32),
    ]


def _cases_of_runs(connection: Connection, runs: Sequence[int]) -> dict[int, CaseRow]:
    m = t.Measurement
    seen = select(m.case_id).where(m.run_id.in_(runs)).distinct()
    return {row[0]: CaseRow(*row[1:]) for row in connection.execute(_case_query().where(t.Case.id.in_(seen)))}


def _case_query() -> Any:
    c = t.Case
    return select(c.id, c.key, c.benchmark, c.version, c.operation, c.backend, c.params, c.label, c.weight)


def _on_machine(fingerprint: str) -> list[ColumnElement[bool]]:
    machine = select(t.Machine.id).where(t.Machine.fingerprint == fingerprint).scalar_subquery()
    return [t.Run.machine_id == machine]


def _until(connection: Connection, run_id: str | None) -> list[ColumnElement[bool]]:
    if run_id is None:
        return []
    found = connection.execute(select(t.Run.started_at, t.Run.id).where(t.Run.name == run_id)).first()
    if found is None:
        raise KeyError(run_id)
    # Runs that started in the same second are told apart by the order in which they were stored.
    start, key = found
    return [(t.Run.started_at < start) | ((t.Run.started_at == start) & (t.Run.id <= key))]
