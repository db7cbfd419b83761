"""Parameters as axes: equal lengths count as one, and neighbours differ in one parameter by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashboard import facts
from harness.model.params import SEQ_LEN

_LENGTHS = ("q_len", "kv_len")


def sized(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns with ``seq_len`` in the place of two equal lengths; a step of both is then a step of one."""
    q, kv = (columns.get(n) for n in _LENGTHS)
    if q is None or q != kv:
        return dict(columns)
    return {SEQ_LEN: q, **{k: v for k, v in columns.items() if k not in _LENGTHS}}


def spread(
    rows: Sequence[Mapping[str, Any]], x: str | None = None, y: str | None = None, facet: str | None = None
) -> facts.Axes:
    """Axes over rows, as :func:`dashboard.facts.axes` lays them out."""
    return facts.layout(rows, frozenset(), x, y, facet)


def neighbours(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, int, int]]:
    """(n, index of the row with n, index of the one with n + 1) where everything else is the same."""
    at: dict[tuple[Any, ...], dict[int, int]] = {}
    for i, row in enumerate(rows):
        value = row.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            rest = tuple(sorted((k, repr(v)) for k, v in row.items() if k != name))
            at.setdefault(rest, {})[value] = i
    return sorted((n, i, group[n + 1]) for group in at.values() for n, i in group.items() if n + 1 in group)
