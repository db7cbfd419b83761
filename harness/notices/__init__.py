"""Notices to people: only of what is new, grouped, outside quiet hours, and never twice for one event."""

from .events import Event, events
from .ledger import Ledger
from .sending import Notice, Outcome, grouped, send

__all__ = ["Event", "Ledger", "Notice", "Outcome", "events", "grouped", "send"]
