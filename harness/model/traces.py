"""Names of what is told about a run elsewhere, in the forms of OpenTelemetry. They follow from what is stored, so the
same run is the same trace however often and from wherever it is told of."""

from __future__ import annotations

from .canonical import content_key

_HEX = frozenset("0123456789abcdef")


def trace_id(run_id: str) -> str:
    """32 hex digits: the id of a run where it is such a number itself, as those of our runs are, else a hash of it."""
    if len(run_id) == 32 and set(run_id) <= _HEX and set(run_id) != {"0"}:
        return run_id
    return content_key("trace", run_id)[:32]


def span_id(run_id: str, *parts: object) -> str:
    """16 hex digits for one piece of a run; without ``parts`` for the run itself."""
    return content_key("span", run_id, *parts)[:16]
