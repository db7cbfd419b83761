"""Read model of what had to be measured twice: where, in which runs, and whether it helped."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import distinct, func, select

from harness.model import Status

from . import tables as t
from .engine import Store

_FAILED = tuple(s.value for s in Status if s.failed)


@dataclass(frozen=True, slots=True)
class RetryCell:
    """One benchmark on one backend in one run. ``cases`` were tried, ``retried`` of them more than once, ``recovered``
    of those ended ok, and ``reasons`` counts how the attempts before the last had ended."""

    run: str
    started_at: float
    benchmark: str
    backend: str
    cases: int
    retried: int
    recovered: int
    reasons: dict[str, int]


def retries(store: Store, machine: str, *, runs: int = 60) -> list[RetryCell]:
    """Cells of the newest ``runs`` runs of a machine (a fingerprint) in which anything was tried, oldest run first."""
    m, c, r = t.Measurement, t.Case, t.Run
    here = select(t.Machine.id).where(t.Machine.fingerprint == machine).scalar_subquery()
    newest = select(r.id).where(r.machine_id == here).order_by(r.started_at.desc(), r.id.desc()).limit(runs).subquery()
    counted = m.status.in_((Status.OK.value, *_FAILED))
    tried = func.count().over(partition_by=(m.run_id, m.case_id)).label("tried")
    every = (
        select(m.run_id, m.case_id, m.attempt, m.status, tried)
        .where(m.run_id.in_(select(newest.c.id)), counted)
        .subquery()
    )
    cell = (r.name, r.started_at, c.benchmark, c.backend)
    joined = every.join(c, c.id == every.c.case_id).join(r, r.id == every.c.run_id)
    all_cases = (
        select(*cell, func.count(distinct(every.c.case_id)))
        .select_from(joined)
        .group_by(r.id, *cell)
        .order_by(r.started_at, r.id, c.benchmark, c.backend)
    )
    # Only what was tried again is looked at row by row: a few of very many.
    again = (
        select(*cell, every.c.case_id, every.c.status)
        .select_from(joined)
        .where(every.c.tried > 1)
        .order_by(every.c.run_id, every.c.case_id, every.c.attempt)
    )
    held: dict[tuple[str, float, str, str], dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    with store.read() as connection:
        counts = connection.execute(all_cases).all()
        for name, at, benchmark, backend, case, status in connection.execute(again):
            held[name, at, benchmark, backend][case].append(status)
    cells = []
    for name, at, benchmark, backend, cases in counts:
        twice = held[name, at, benchmark, backend].values()
        before = Counter(s for statuses in twice for s in statuses[:-1])
        back = sum(statuses[-1] == Status.OK.value for statuses in twice)
        cells.append(RetryCell(name, at, benchmark, backend, cases, len(twice), back, dict(before)))
    return cells


def standing_attempts(store: Store, run_id: str, case_keys: Collection[str]) -> dict[str, int]:
    """Case key -> number of the attempt that stands for it in a run; cases that the run lacks are left out."""
    m, c = t.Measurement, t.Case
    query = (
        select(c.key, m.attempt)
        .join(m, m.case_id == c.id)
        .join(t.Run, t.Run.id == m.run_id)
        .where(t.Run.name == run_id, c.key.in_(case_keys), m.superseded.is_(False))
    )
    with store.read() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}
