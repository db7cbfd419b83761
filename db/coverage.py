"""What was measured when, and how long it took: for choosing what a night with a budget begins with."""

from __future__ import annotations

from sqlalchemy import ColumnElement, func, select

from harness.model import Status

from . import tables as t
from .engine import Store

#: Statuses of cases that nobody tried to measure.
_LEFT_OUT = (Status.DESELECTED.value, Status.SKIPPED.value)


def last_measured(store: Store, machine: str | None = None) -> dict[str, float]:
    """Case key -> when it was last measured or tried, seconds since the epoch.

    ``machine`` is a fingerprint, None for any. Cases that were only ever left out are not among the keys.
    """
    return _of_cases(store, machine, func.max(t.Measurement.started_at))


def mean_durations(store: Store, machine: str | None = None) -> dict[str, float]:
    """Case key -> seconds that measuring it took on the average; keys as for :func:`last_measured`."""
    return _of_cases(store, machine, func.avg(t.Measurement.duration_s))


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
