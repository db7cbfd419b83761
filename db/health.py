"""Read models of how well measuring goes: newest runs, what they lack, what failed, what changed around them."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, exists, func, or_, select
from sqlalchemy.orm import aliased

from harness.model import Status

from . import tables as t
from .engine import Store
from .history import CaseRow

#: Statuses of cases that nobody could try to measure.
_UNTRIED = tuple(s.value for s in Status if s.absent or s is Status.DESELECTED)


@dataclass(frozen=True, slots=True)
class Coverage:
    """The newest run of a suite on a machine. ``missing`` counts cases of the run before it that it lacks."""

    machine: str
    device_model: str
    suite: str
    run: str
    revision: str
    started_at: float
    finished_at: float | None
    complete: bool
    planned: int
    measured: int
    counts: dict[str, int]
    missing: int


@dataclass(frozen=True, slots=True)
class EnvironmentStep:
    """A run whose environment, kernels left out, or ruler is not that of the run before it on the machine."""

    run: str
    started_at: float
    changes: list[str]


@dataclass(frozen=True, slots=True)
class Trouble:
    """A measurement that failed, or from which samples were thrown away."""

    case: CaseRow
    status: str
    detail: str
    discarded: dict[str, int]
    telemetry: dict[str, Any]


def coverage(store: Store) -> list[Coverage]:
    """The newest run of each suite on each machine, newest first."""
    r, m = t.Run, t.Measurement
    ranked = select(
        r.id,
        func.row_number().over(partition_by=(r.machine_id, r.suite), order_by=(r.started_at.desc(), r.id.desc())),
        func.lead(r.id).over(partition_by=(r.machine_id, r.suite), order_by=(r.started_at.desc(), r.id.desc())),
    ).subquery()
    run_id, place, before_id = ranked.c
    newest = (
        select(
            *(r.id, before_id, t.Machine.fingerprint, t.Machine.device_model, r.suite, r.name, t.Revision.name),
            *(r.started_at, r.finished_at, r.complete, r.planned, r.measured),
        )
        .join(ranked, and_(run_id == r.id, place == 1))
        .join(t.Machine, t.Machine.id == r.machine_id)
        .join(t.Revision, t.Revision.id == r.revision_id)
        .order_by(r.started_at.desc(), r.id.desc())
    )
    now, old = aliased(m), aliased(m)
    out = []
    with store.read() as connection:
        for key, before, *row in connection.execute(newest).all():
            by_status = (
                select(m.status, func.count()).where(m.run_id == key, m.superseded.is_(False)).group_by(m.status)
            )
            gone = (
                select(func.count())
                .select_from(old)
                .where(old.run_id == before, old.superseded.is_(False))
                .where(~exists().where(now.run_id == key, now.case_id == old.case_id))
            )
            counts = {found[0]: found[1] for found in connection.execute(by_status)}
            missing = 0 if before is None else connection.execute(gone).scalar() or 0
            fields: tuple[Any, ...] = (*row, counts, missing)
            out.append(Coverage(*fields))
    return out


def environment_steps(store: Store, machine: str, *, limit: int = 400) -> list[EnvironmentStep]:
    """Where packages, driver, variables, threads or ruler changed over the newest ``limit`` runs of a machine."""
    r, e = t.Run, t.Environment
    here = select(t.Machine.id).where(t.Machine.fingerprint == machine).scalar_subquery()
    order = (
        select(r.name, r.started_at, r.environment_id, r.ruler_version)
        .where(r.machine_id == here)
        .order_by(r.started_at.desc(), r.id.desc())
        .limit(limit)
    )
    kinds = select(e.id, e.python, e.driver, e.threads, e.packages, e.variables).where(e.machine_id == here)
    with store.read() as connection:
        runs = connection.execute(order).all()[::-1]
        flat = {row[0]: _flat(row) for row in connection.execute(kinds)}
    steps = []
    for before, now in itertools.pairwise(runs):
        a, b = flat.get(before[2], {}), flat.get(now[2], {})
        told = [f"{k}: {a.get(k, 'absent')} -> {b.get(k, 'absent')}" for k in sorted({*a, *b}) if a.get(k) != b.get(k)]
        if before[3] != now[3]:
            told.append(f"ruler: {before[3]} -> {now[3]}")
        if told:
            steps.append(EnvironmentStep(now[0], now[1], told))
    return steps


def troubles(store: Store, run_id: str, *, limit: int = 500) -> list[Trouble]:
    """Measurements of a run that failed or lost samples; what a device cannot run is left out."""
    m, c = t.Measurement, t.Case
    query: Any = (
        select(*(m.status, m.detail, m.discarded, m.telemetry), *case_columns())
        .join(c, c.id == m.case_id)
        .where(m.run_id == select(t.Run.id).where(t.Run.name == run_id).scalar_subquery(), m.superseded.is_(False))
        .where(or_(m.discarded.is_not(None), m.status.not_in(("ok", "unsupported", "skipped", "deselected"))))
        .order_by(m.status == "ok", m.id)
        .limit(limit)
    )
    with store.read() as connection:
        return [Trouble(CaseRow(*r[4:]), r[0], r[1], r[2] or {}, r[3] or {}) for r in connection.execute(query)]


def discarded_samples(store: Store, run_id: str) -> dict[str, int]:
    """Reason -> samples of a run that were thrown away; superseded attempts count, since they were measured too."""
    m, found = t.Measurement, Counter[str]()
    query = select(m.discarded).where(
        m.run_id == select(t.Run.id).where(t.Run.name == run_id).scalar_subquery(), m.discarded.is_not(None)
    )
    with store.read() as connection:
        for (held,) in connection.execute(query):
            found.update(held or {})
    return dict(found)


def unstable_cases(store: Store, *, runs: int = 10) -> set[str]:
    """Keys of cases that an incident of the newest ``runs`` runs holds, or that ran and failed among them."""
    m, r, i = t.Measurement, t.Run, t.Incident
    newest = select(r.id, r.started_at).order_by(r.started_at.desc(), r.id.desc()).limit(runs).subquery()
    since = select(func.min(newest.c.started_at)).scalar_subquery()
    both = (
        select(t.Case.key)
        .join(m, m.case_id == t.Case.id)
        .where(m.run_id.in_(select(newest.c.id)), m.status.not_in(_UNTRIED))
        .group_by(t.Case.id, t.Case.key)
        .having(func.count(m.status.distinct()) > 1)
    )
    held = (
        select(t.Case.key)
        .join(t.Regression, t.Regression.case_id == t.Case.id)
        .join(i, i.id == t.Regression.incident_id)
        .where(i.updated_at >= since)
    )
    with store.read() as connection:
        return {key for query in (both, held) for (key,) in connection.execute(query)}


def _flat(row: Any) -> dict[str, str]:
    flat = {"python": str(row[1]), "driver": str(row[2]), "threads": str(row[3])}
    flat |= {f"package {k}": str(v) for k, v in (row[4] or {}).items()}
    return flat | {f"variable {k}": str(v) for k, v in (row[5] or {}).items()}


def case_columns() -> tuple[Any, ...]:
    """Columns that make a :class:`CaseRow`."""
    c = t.Case
    return (c.key, c.benchmark, c.version, c.operation, c.backend, c.params, c.label, c.weight)
