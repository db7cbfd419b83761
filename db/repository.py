"""Writes other than ingesting: incidents, their regressions and their triage."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select, update

from harness.model import METRICS, InputError, TriageState, VerdictKind

from . import tables as t
from .bulk import clean, table_of, upsert
from .engine import Store
from .importer import Importer, Tally

__all__ = [
    "TRANSITIONS",
    "Importer",
    "IncidentRecord",
    "RegressionRecord",
    "Tally",
    "set_owner",
    "set_trigger",
    "triage",
    "upsert_incident",
]

_S = TriageState

#: From which state people and the judge may move an incident where. Closed ones may be opened again.
TRANSITIONS: Mapping[TriageState, frozenset[TriageState]] = {
    _S.SUSPECT: frozenset({_S.NEW, _S.CONFIRMED, _S.DISMISSED, _S.EXPECTED, _S.FALSE_POSITIVE}),
    _S.DISMISSED: frozenset({_S.SUSPECT, _S.NEW, _S.CONFIRMED}),
    _S.NEW: frozenset({_S.CONFIRMED, _S.ACKNOWLEDGED, _S.EXPECTED, _S.FIXED, _S.FALSE_POSITIVE, _S.DISMISSED}),
    _S.CONFIRMED: frozenset({_S.ACKNOWLEDGED, _S.EXPECTED, _S.FIXED, _S.FALSE_POSITIVE}),
    _S.ACKNOWLEDGED: frozenset({_S.CONFIRMED, _S.EXPECTED, _S.FIXED, _S.FALSE_POSITIVE}),
    _S.EXPECTED: frozenset({_S.CONFIRMED, _S.ACKNOWLEDGED, _S.FIXED}),
    _S.FIXED: frozenset({_S.NEW, _S.CONFIRMED, _S.ACKNOWLEDGED}),
    _S.FALSE_POSITIVE: frozenset({_S.NEW, _S.CONFIRMED, _S.ACKNOWLEDGED}),
}


@dataclass(frozen=True)
class RegressionRecord:
    """An adverse change of one case and metric; ``ratio`` is head over base. Runs are run ids."""

    case_key: str
    metric: str
    verdict: VerdictKind
    state: TriageState
    base_run: str | None = None
    head_run: str | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    p_value: float | None = None
    smallest_detectable: float | None = None
    base_status: str = "ok"
    head_status: str = "ok"


@dataclass(frozen=True)
class IncidentRecord:
    """Regressions that share a trigger and a start. ``machine`` is a fingerprint, revisions are revision ids.

    ``state`` counts when the incident is first stored; later only :func:`triage` moves it.
    """

    id: str
    title: str
    trigger_text: str
    machine: str
    state: TriageState = TriageState.NEW
    first_bad_revision: str | None = None
    last_good_revision: str | None = None
    effect: float | None = None
    effect_low: float | None = None
    effect_high: float | None = None
    owner: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)


def upsert_incident(
    store: Store, incident: IncidentRecord, regressions: Sequence[RegressionRecord], *, at: float | None = None
) -> bool:
    """Store an incident with its regressions, or bring it up to date; True where it is new.

    ``at`` is the time of it, now where None. Regressions that the incident has and ``regressions`` lacks stay as they
    are. State, owner and opening of a stored incident stay as people left them. Raises InputError where a case,
    metric, run, revision or machine is not stored; nothing is changed then.
    """
    now = time.time() if at is None else at
    with store.write() as connection:
        table, wanted = table_of(t.Incident), clean(incident.id)
        known = connection.execute(select(t.Incident.id).where(t.Incident.id == wanted)).first()
        fresh: dict[str, Any] = {
            "title": clean(incident.title),
            "trigger_text": clean(incident.trigger_text),
            "first_bad_revision_id": _find(connection, t.Revision, t.Revision.name, incident.first_bad_revision),
            "last_good_revision_id": _find(connection, t.Revision, t.Revision.name, incident.last_good_revision),
            "effect": incident.effect,
            "effect_low": incident.effect_low,
            "effect_high": incident.effect_high,
            "updated_at": now,
            "evidence": incident.evidence,
        }
        if known is None:
            fresh |= {"id": wanted, "state": incident.state.value, "opened_at": now, "owner": clean(incident.owner)}
            fresh["machine_id"] = _find(connection, t.Machine, t.Machine.fingerprint, incident.machine)
            connection.execute(table.insert(), fresh)
            _event(connection, wanted, now, None, incident.state, "opened", "attnwatch")
        else:
            connection.execute(update(table).where(table.c.id == wanted).values(fresh))
        _put_regressions(connection, wanted, regressions)
    return known is None


def triage(
    store: Store, incident_id: str, state: TriageState, reason: str, author: str, *, at: float | None = None
) -> TriageState:
    """Move an incident to ``state`` with a reason and an author; the state before is returned.

    Raises InputError for an unknown incident, an empty reason, or a step that :data:`TRANSITIONS` does not allow.
    """
    if not reason.strip():
        raise InputError("triage needs a reason; give one with --reason")
    now = time.time() if at is None else at
    with store.write() as connection:
        table, wanted = table_of(t.Incident), clean(incident_id)
        found = connection.execute(select(t.Incident.state).where(t.Incident.id == wanted)).scalar()
        if found is None:
            raise InputError(f"no incident {incident_id!r} in {store.name}; `attnwatch detect` lists them")
        before = TriageState(found)
        if state not in TRANSITIONS[before]:
            allowed = ", ".join(sorted(s.value for s in TRANSITIONS[before]))
            raise InputError(
                f"incident {incident_id} is {before.value} and cannot become {state.value}; it can become: {allowed}"
            )
        connection.execute(update(table).where(table.c.id == wanted).values(state=state.value, updated_at=now))
        _event(connection, wanted, now, before, state, reason, author)
    return before


def set_owner(store: Store, incident_id: str, owner: str) -> None:
    """Say who looks after an incident. Raises InputError where it is not stored."""
    with store.write() as connection:
        table = table_of(t.Incident)
        change = update(table).where(table.c.id == clean(incident_id)).values(owner=clean(owner))
        if connection.execute(change).rowcount == 0:
            raise InputError(f"no incident {incident_id!r} in {store.name}; `attnwatch detect` lists them")


def _put_regressions(connection: Connection, incident_id: str, regressions: Sequence[RegressionRecord]) -> None:
    for r in regressions:
        values = {
            "base_run_id": _find(connection, t.Run, t.Run.name, r.base_run),
            "head_run_id": _find(connection, t.Run, t.Run.name, r.head_run),
            "ratio": r.ratio,
            "ratio_low": r.ratio_low,
            "ratio_high": r.ratio_high,
            "p_value": r.p_value,
            "smallest_detectable": r.smallest_detectable,
            "verdict": r.verdict.value,
            "state": r.state.value,
            "base_status": r.base_status,
            "head_status": r.head_status,
        }
        key = {
            "incident_id": incident_id,
            "case_id": _find(connection, t.Case, t.Case.key, r.case_key),
            "metric_id": _metric(connection, r.metric),
        }
        statement = upsert(connection, t.Regression).values(**key, **values)
        connection.execute(statement.on_conflict_do_update(index_elements=list(key), set_=values))


def _metric(connection: Connection, name: str) -> int | None:
    """Id of a metric; a registered one that no measurement has had yet (a status) is added."""
    if name in METRICS:
        m = METRICS[name]
        row = {"name": m.name, "unit": m.unit, "better": m.better, "exact": m.exact}
        connection.execute(upsert(connection, t.Metric).values(**row).on_conflict_do_nothing())
    return _find(connection, t.Metric, t.Metric.name, name)


def _event(
    connection: Connection,
    incident_id: str,
    at: float,
    before: TriageState | None,
    after: TriageState,
    reason: str,
    author: str,
) -> None:
    connection.execute(
        table_of(t.TriageEvent).insert(),
        {
            "incident_id": incident_id,
            "at": at,
            "from_state": before.value if before else None,
            "to_state": after.value,
            "reason": clean(reason),
            "author": clean(author),
        },
    )


def _find(connection: Connection, model: Any, column: Any, value: str | None) -> int | None:
    if value is None:
        return None
    found: int | None = connection.execute(select(model.id).where(column == clean(value))).scalar()
    if found is None:
        raise InputError(f"{model.__tablename__} {value!r} is not in the store; ingest its bundle first")
    return found


def set_trigger(store: Store, incident_id: str, text: str, why: str, *, at: float) -> None:
    """Give an incident the trigger that further measuring settled, and keep why. InputError where it is not stored."""
    with store.write() as connection:
        table, wanted = table_of(t.Incident), clean(incident_id)
        row = connection.execute(select(t.Incident.state, t.Incident.evidence).where(t.Incident.id == wanted)).first()
        if row is None:
            raise InputError(f"no incident {incident_id!r} in {store.name}; `attnwatch detect` lists them")
        values = {"trigger_text": clean(text), "evidence": {**row.evidence, "trigger": why}, "updated_at": at}
        connection.execute(update(table).where(table.c.id == wanted).values(values))
        _event(
            connection,
            wanted,
            at,
            TriageState(row.state),
            TriageState(row.state),
            f"trigger: {text}; {why}",
            "attnwatch",
        )
