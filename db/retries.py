"""Read model of what had to be measured twice: where, in which runs, and whether it helped."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select

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
    query = (
        select(r.name, r.started_at, c.benchmark, c.backend, m.case_id, m.attempt, m.status)
        .join(c, c.id == m.case_id)
        .join(r, r.id == m.run_id)
        .where(m.run_id.in_(select(newest.c.id)))
        .order_by(r.started_at, r.id, c.benchmark, c.backend, m.case_id, m.attempt)
    )
    held: dict[tuple[str, float, str, str], dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    with store.read() as connection:
        for name, at, benchmark, backend, case, _, status in connection.execute(query):
            if status == Status.OK.value or status in _FAILED:
                held[name, at, benchmark, backend][case].append(status)
    cells = []
    for key, cases in held.items():
        twice = [statuses for statuses in cases.values() if len(statuses) > 1]
        before = Counter(s for statuses in twice for s in statuses[:-1])
        back = sum(statuses[-1] == Status.OK.value for statuses in twice)
        cells.append(RetryCell(*key, len(cases), len(twice), back, dict(before)))
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
