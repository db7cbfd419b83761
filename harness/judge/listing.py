"""What ``attnwatch detect`` says of the store: its open incidents, the dearest first."""

from __future__ import annotations

from typing import Any

from db.coverage import suite_starts
from db.engine import Store
from db.queries import incidents
from harness.model import TriageState

from .coverage import overdue
from .suspects import OPEN

#: Runs that show how long a suite usually waits.
_STARTS = 16


def open_incidents(store: Store) -> list[dict[str, Any]]:
    """Incidents that nobody has closed, as plain rows; ``lost_s`` as in :class:`harness.model.findings.Incident`."""
    rows = [
        {
            "id": i.id, "state": i.state, "title": i.title, "trigger": i.trigger_text or None, "effect": i.effect,
            "effect_ci": None if i.effect_low is None else [i.effect_low, i.effect_high], "cases": i.regressions,
            "machine": i.machine, "first_bad_revision": i.first_bad_revision,
            "last_good_revision": i.last_good_revision, "opened_at": i.opened_at, "owner": i.owner or None,
            "shadow": bool(i.evidence.get("shadow")), "severity": i.evidence.get("severity") or "normal",
            "lost_s": float(i.evidence.get("lost_s") or 0.0),
        }
        for i in incidents(store, states=[s.value for s in OPEN])
    ]  # fmt: skip
    return sorted(rows, key=lambda r: -r["lost_s"])  # of equals the newest comes first


def any_new(rows: list[dict[str, Any]]) -> bool:
    """Whether one of them is confirmed, nobody has looked at it yet, and it was not found in shadow."""
    return any(r["state"] == TriageState.NEW.value and not r["shadow"] for r in rows)


def untold(store: Store, machine: str) -> list[str]:
    """Ids of incidents on a machine (a fingerprint) that were found in shadow and that nobody has looked at."""
    held = incidents(store, states=[TriageState.NEW.value], machine=machine)
    return [i.id for i in held if i.evidence.get("shadow")]


def overdue_suites(store: Store, now: float) -> list[str]:
    """Suites whose next run is late at the time ``now``, with the machine and how late, as text for people."""
    told = []
    for held in suite_starts(store, limit=_STARTS):
        late = overdue(held.starts, now)
        if late is not None:
            told.append(f"no {held.suite} run on {held.device_model} for {late / 86400:.1f} days")
    return told
