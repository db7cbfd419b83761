"""Read models of incidents; :mod:`db.repository` writes them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import aliased

from . import tables as t
from .engine import Store
from .history import CaseRow


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """One incident; ``effect`` is head over base, ``regressions`` their number. ``machine`` is a fingerprint."""

    id: str
    title: str
    trigger_text: str
    state: str
    machine: str
    first_bad_revision: str | None
    last_good_revision: str | None
    effect: float | None
    effect_low: float | None
    effect_high: float | None
    opened_at: float
    updated_at: float
    owner: str
    evidence: dict[str, Any]
    regressions: int


@dataclass(frozen=True, slots=True)
class RegressionRow:
    """One case and metric of an incident; ``ratio`` is head over base."""

    case: CaseRow
    metric: str
    base_run: str | None
    head_run: str | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    p_value: float | None
    smallest_detectable: float | None
    verdict: str
    state: str
    base_status: str
    head_status: str


@dataclass(frozen=True, slots=True)
class TriageRow:
    """One step of triage; ``from_state`` is None where the incident was opened."""

    at: float
    from_state: str | None
    to_state: str
    reason: str
    author: str


@dataclass(frozen=True, slots=True)
class IncidentDetail:
    """An incident with its regressions (largest ratio first) and its triage in order of time."""

    incident: IncidentRow
    regressions: list[RegressionRow]
    events: list[TriageRow]


def incidents(
    store: Store, *, states: Collection[str] | None = None, machine: str | None = None, limit: int | None = None
) -> list[IncidentRow]:
    """Incidents, the one updated last first."""
    query = _incident_query().order_by(t.Incident.updated_at.desc(), t.Incident.id)
    if states is not None:
        query = query.where(t.Incident.state.in_(states))
    if machine is not None:
        query = query.where(t.Machine.fingerprint == machine)
    if limit is not None:
        query = query.limit(limit)
    with store.read() as connection:
        return [IncidentRow(*row) for row in connection.execute(query)]


def incident(store: Store, incident_id: str) -> IncidentDetail | None:
    """One incident with all that belongs to it, or None."""
    base, head = aliased(t.Run), aliased(t.Run)
    c, g, e = t.Case, t.Regression, t.TriageEvent
    regressions: Any = (
        select(
            *(c.key, c.benchmark, c.version, c.operation, c.backend, c.params, c.label, c.weight),
            *(t.Metric.name, base.name, head.name, g.ratio, g.ratio_low, g.ratio_high, g.p_value),
            *(g.smallest_detectable, g.verdict, g.state, g.base_status, g.head_status),
        )
        .select_from(g)
        .join(c, c.id == g.case_id)
        .join(t.Metric, t.Metric.id == g.metric_id)
        .outerjoin(base, base.id == g.base_run_id)
        .outerjoin(head, head.id == g.head_run_id)
        .where(g.incident_id == incident_id)
        .order_by(g.ratio.desc().nulls_last(), g.id)
    )
    events = (
        select(e.at, e.from_state, e.to_state, e.reason, e.author)
        .where(e.incident_id == incident_id)
        .order_by(e.at, e.id)
    )
    with store.read() as connection:
        row = connection.execute(_incident_query().where(t.Incident.id == incident_id)).first()
        if row is None:
            return None
        return IncidentDetail(
            IncidentRow(*row),
            [RegressionRow(CaseRow(*r[:8]), *r[8:]) for r in connection.execute(regressions)],
            [TriageRow(*r) for r in connection.execute(events)],
        )


@dataclass(frozen=True, slots=True)
class KnownSeries:
    """One case and metric of an incident.

    ``bad_since`` is the start of the first run of the first bad revision, ``updated_at`` when the state last moved,
    ``bad_run`` the run that the incident was told of.
    """

    incident_id: str
    state: str
    case_key: str
    metric: str
    bad_since: float
    updated_at: float
    ratio: float | None
    bad_run: str | None


def known_series(store: Store, machine: str, states: Collection[str]) -> list[KnownSeries]:
    """Series of the incidents on a machine (a fingerprint) that are in one of ``states``."""
    i, g, bad = t.Incident, t.Regression, aliased(t.Run)
    since = (
        select(func.min(t.Run.started_at))
        .where(t.Run.revision_id == i.first_bad_revision_id, t.Run.machine_id == i.machine_id)
        .correlate(i)
        .scalar_subquery()
    )
    query = (
        select(
            i.id, i.state, t.Case.key, t.Metric.name, func.coalesce(since, i.opened_at), i.updated_at, g.ratio, bad.name
        )
        .join(g, g.incident_id == i.id)
        .outerjoin(bad, bad.id == g.head_run_id)
        .join(t.Case, t.Case.id == g.case_id)
        .join(t.Metric, t.Metric.id == g.metric_id)
        .join(t.Machine, t.Machine.id == i.machine_id)
        .where(t.Machine.fingerprint == machine, i.state.in_(states))
        .order_by(i.opened_at, i.id, g.id)
    )
    with store.read() as connection:
        return [KnownSeries(*row) for row in connection.execute(query)]


def _incident_query() -> Any:
    i, bad, good = t.Incident, aliased(t.Revision), aliased(t.Revision)
    count = select(func.count()).where(t.Regression.incident_id == i.id).scalar_subquery()
    return (
        select(
            *(i.id, i.title, i.trigger_text, i.state, t.Machine.fingerprint, bad.name, good.name),
            *(i.effect, i.effect_low, i.effect_high, i.opened_at, i.updated_at, i.owner, i.evidence, count),
        )
        .join(t.Machine, t.Machine.id == i.machine_id)
        .outerjoin(bad, bad.id == i.first_bad_revision_id)
        .outerjoin(good, good.id == i.last_good_revision_id)
    )
