"""What was measured when, and how long it took: for budgets, and for noticing what is not measured any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from sqlalchemy import ColumnElement, func, select

from harness.model import MeasureOptions, Reason, Run, Status

from . import tables as t
from .engine import Store

#: Statuses of cases that nobody tried to measure.
_LEFT_OUT = (Status.DESELECTED.value, Status.SKIPPED.value)
_NO_RESULT = (*_LEFT_OUT, Status.INVALID.value)


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """One run of a suite; ``complete`` where it was not broken off."""

    id: str
    started_at: float
    complete: bool


def runs_alike(store: Store, run_id: str, *, limit: int) -> list[SuiteRun]:
    """The newest ``limit`` runs of one machine, suite and reason up to ``run_id``, oldest first. Empty if unknown."""
    r = t.Run
    with store.read() as connection:
        found = connection.execute(
            select(r.id, r.started_at, r.machine_id, r.suite, r.reason).where(r.name == run_id)
        ).first()
        if found is None:
            return []
        key, start, machine, suite, reason = found
        query = (
            select(r.name, r.started_at, r.complete)
            .where(r.machine_id == machine, r.suite == suite, r.reason == reason)
            .where((r.started_at < start) | ((r.started_at == start) & (r.id <= key)))
            .order_by(r.started_at.desc(), r.id.desc())
            .limit(limit)
        )
        return [SuiteRun(*row) for row in connection.execute(query)][::-1]


@dataclass(frozen=True, slots=True)
class SuiteStarts:
    """When the newest nightly runs of one suite on one machine began, oldest first."""

    suite: str
    device_model: str
    starts: list[float]


def suite_starts(store: Store, *, limit: int) -> list[SuiteStarts]:
    """Starts of the newest ``limit`` nightly runs of each suite on each machine."""
    r = t.Run
    place = func.row_number().over(partition_by=(r.machine_id, r.suite), order_by=(r.started_at.desc(), r.id.desc()))
    ranked = (
        select(r.machine_id, r.suite, r.started_at, place.label("place"))
        .where(r.reason == Reason.NIGHTLY.value)
        .subquery()
    )
    query = (
        select(ranked.c.suite, t.Machine.id, t.Machine.device_model, ranked.c.started_at)
        .join(t.Machine, t.Machine.id == ranked.c.machine_id)
        .where(ranked.c.place <= limit)
        .order_by(t.Machine.id, ranked.c.suite, ranked.c.started_at)
    )
    held: dict[tuple[str, int], SuiteStarts] = {}
    with store.read() as connection:
        for suite, machine, model, start in connection.execute(query):
            held.setdefault((suite, machine), SuiteStarts(suite, model, [])).starts.append(start)
    return list(held.values())


def last_measured(store: Store, machine: str | None = None) -> dict[str, float]:
    """Case key -> when it was last measured or tried, seconds since the epoch.

    ``machine`` is a fingerprint, None for any. Cases that were only ever left out are not among the keys.
    """
    return _of_cases(store, machine, func.max(t.Measurement.started_at))


def mean_durations(store: Store, machine: str | None = None) -> dict[str, float]:
    """Case key -> seconds that measuring it took on the average; keys as for :func:`last_measured`."""
    return _of_cases(store, machine, func.avg(t.Measurement.duration_s))


def already_measured(store: Store, wanted: Run) -> set[str]:
    """Keys of cases of which the store holds a result that measuring for ``wanted`` would only repeat.

    The same ruler, environment (machine, packages, variables, content of kernels) and options of measuring. What failed
    for the machine's sake, or was left out, is no result.
    """
    m, r, e = t.Measurement, t.Run, t.Environment
    runs = (
        select(r.id, r.options)
        .join(e, e.id == r.environment_id)
        .where(e.hash == wanted.environment.hash, r.ruler_version == wanted.ruler_version)
    )
    with store.read() as connection:
        alike = [key for key, options in connection.execute(runs) if _method(options) == _method(wanted.options)]
        query = select(t.Case.key).join(m, m.case_id == t.Case.id).where(m.status.not_in(_NO_RESULT)).distinct()
        return {key for run in alike for (key,) in connection.execute(query.where(m.run_id == run))}


def _method(options: Mapping[str, object]) -> dict[str, object]:
    """Of a run's options those that say how samples are taken."""
    return {f.name: options[f.name] for f in fields(MeasureOptions) if options.get(f.name) is not None}


def _of_cases(store: Store, machine: str | None, what: ColumnElement[float]) -> dict[str, float]:
    m = t.Measurement
    query = (
        select(t.Case.key, what)
        .join(m, m.case_id == t.Case.id)
        .where(m.status.not_in(_LEFT_OUT))
        .group_by(t.Case.id, t.Case.key)
    )
    if machine is not None:
        here = select(t.Machine.id).where(t.Machine.fingerprint == machine).scalar_subquery()
        query = query.join(t.Run, t.Run.id == m.run_id).where(t.Run.machine_id == here)
    with store.read() as connection:
        return {key: float(value) for key, value in connection.execute(query)}
