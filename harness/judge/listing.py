"""What ``attnwatch detect`` says of the store: its open incidents, newest first."""

from __future__ import annotations

from typing import Any

from db.engine import Store
from db.queries import incidents
from harness.model import TriageState

from .suspects import OPEN


def open_incidents(store: Store) -> list[dict[str, Any]]:
    """Incidents that nobody has closed, as plain rows."""
    return [
        {
            "id": i.id, "state": i.state, "title": i.title, "trigger": i.trigger_text or None, "effect": i.effect,
            "effect_ci": None if i.effect_low is None else [i.effect_low, i.effect_high], "cases": i.regressions,
            "machine": i.machine, "first_bad_revision": i.first_bad_revision,
            "last_good_revision": i.last_good_revision, "opened_at": i.opened_at, "owner": i.owner or None,
        }
        for i in incidents(store, states=[s.value for s in OPEN])
    ]  # fmt: skip


def any_new(rows: list[dict[str, Any]]) -> bool:
    """Whether one of them is confirmed and nobody has looked at it yet."""
    return any(r["state"] == TriageState.NEW.value for r in rows)
