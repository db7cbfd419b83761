"""From regressed combinations to the smallest predicate that covers them. Pure: numpy and ``harness.model``."""

from __future__ import annotations

from .engine import explain
from .result import Explanation, Options, Trigger
from .terms import Term

__all__ = ["Explanation", "Options", "Term", "Trigger", "explain"]
