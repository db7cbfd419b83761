"""The read model of the atlas: every series of a machine with where it stands and how far it has moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import String, and_, exists, func, select

from . import tables as t
from .engine import Store
from .history import CaseRow

#: Runs looked back upon for the level of a series.
LOOK_BACK = 12

_OPEN = ("suspect", "new", "confirmed", "acknowledged")


@dataclass(frozen=True, slots=True)
class AtlasRow:
    """A series: its newest value, the mean of those before it within the newest runs, and newest / mean - 1."""

    case: CaseRow
    newest: float
    level: float | None
    change: float | None
    in_incident: bool


@dataclass(frozen=True, slots=True)
class AtlasPage:
    """One page of series, and how many there are under the same filters."""

    rows: list[AtlasRow]
    total: int


def atlas(
    store: Store,
    machine: str,
    metric: str,
    *,
    operation: str | None = None,
    benchmark: str | None = None,
    backend: str | None = None,
    words: str = "",
    changed_by: float | None = None,
    limit: int = 48,
    offset: int = 0,
) -> AtlasPage:
    """Series of a metric on a machine that have a value in its newest :data:`LOOK_BACK` runs, moved farthest first.

    ``changed_by`` keeps those that moved by more than this share, or that an open incident holds.
    """
    m, c, v, r, g, i = t.Measurement, t.Case, t.MetricValue, t.Run, t.Regression, t.Incident
    here = select(t.Machine.id).where(t.Machine.fingerprint == machine).scalar_subquery()
    which = select(t.Metric.id).where(t.Metric.name == metric).scalar_subquery()
    newest_runs = select(r.id).where(r.machine_id == here).order_by(r.started_at.desc(), r.id.desc()).limit(LOOK_BACK)
    filters = [
        column == value
        for column, value in ((c.operation, operation), (c.benchmark, benchmark), (c.backend, backend))
        if value is not None
    ]
    filters += [
        (c.label + " " + c.backend + " " + c.benchmark).cast(String).icontains(word, autoescape=True)
        for word in words.split()
    ]
    with store.read() as connection:
        runs = list(connection.execute(newest_runs).scalars())
        if not runs:
            return AtlasPage([], 0)
        # As a list, so that both databases go from these runs to their measurements and never read all of them.
        points = (
            select(m.case_id.label("case_id"), v.value.label("value"), m.run_id.label("run_id"))
            .join(v, and_(v.measurement_id == m.id, v.metric_id == which))
            .where(m.run_id.in_(runs), m.superseded.is_(False))
        )
        if filters:
            points = points.join(c, c.id == m.case_id).where(*filters)
        point = points.subquery()
        # Read once, one value for each run: whatever a database guesses of runs that it has just been given, nothing is
        # joined with itself.
        newest = func.coalesce(*(func.max(point.c.value).filter(point.c.run_id == run) for run in runs), None)
        others = func.nullif(func.count() - 1, 0)
        summary = (
            select(
                point.c.case_id, newest.label("newest"), ((func.sum(point.c.value) - newest) / others).label("level")
            )
            .group_by(point.c.case_id)
            .cte("summary")
        )
        change = summary.c.newest / func.nullif(summary.c.level, 0) - 1
        held = exists().where(
            g.case_id == summary.c.case_id, g.incident_id == i.id, i.state.in_(_OPEN), i.machine_id == here,
            g.metric_id == which,
        )  # fmt: skip
        query: Any = select(
            *(c.key, c.benchmark, c.version, c.operation, c.backend, c.params, c.label, c.weight),
            *(summary.c.newest, summary.c.level, change, held, func.count().over()),
        ).join(summary, summary.c.case_id == c.id)
        if changed_by is not None:
            query = query.where((func.abs(change) > changed_by) | held)
        query = query.order_by(func.coalesce(func.abs(change), -1.0).desc(), c.id).limit(limit).offset(offset)
        rows = connection.execute(query).all()
    found = [AtlasRow(CaseRow(*x[:8]), x[8], x[9], x[10], bool(x[11])) for x in rows]
    return AtlasPage(found, rows[0][12] if rows else 0)
