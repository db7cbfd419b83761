"""How a number grows along one axis of a sweep: a fitted exponent with an interval, and the knee where it changes.

Along a line everything is the same but the axis. ``seq_len`` is q_len and kv_len where they grow together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.model import Scalar

from .estimates import Estimate, exponent

#: axis -> the columns that grow together along it.
AXES: dict[str, tuple[str, ...]] = {
    "seq_len": ("q_len", "kv_len"),
    "kv_len": ("kv_len",),
    "q_len": ("q_len",),
    "batch": ("batch",),
    "heads_q": ("heads_q", "heads_kv"),
    "head_dim": ("head_dim",),
}

#: Points of a line without which nothing is fitted, and by how much an exponent rises in another way of growing.
LEAST_POINTS, RISE = 3, 0.25


@dataclass(frozen=True)
class Line:
    """Rows (indices) that differ along ``axis`` only, by size; ``x``: the value there; ``fixed``: all other columns."""

    axis: str
    fixed: tuple[tuple[str, Scalar], ...]
    rows: tuple[int, ...]
    x: tuple[float, ...]


@dataclass(frozen=True)
class Knee:
    """Up to ``at`` the number grows with exponent ``before``, from there on with ``after``."""

    at: float
    before: Estimate
    after: Estimate


def lines(rows: Sequence[Mapping[str, Scalar]], least: int = LEAST_POINTS) -> list[Line]:
    """Every line of at least ``least`` points in a table of cases (parameters, backend, benchmark ...)."""
    found = []
    for axis, columns in AXES.items():
        groups: dict[tuple[tuple[str, Scalar], ...], dict[float, int]] = defaultdict(dict)
        for i, row in enumerate(rows):
            values = {row.get(c) for c in columns}
            value = next(iter(values))
            if len(values) != 1 or isinstance(value, bool | str) or value is None or value <= 0:
                continue
            fixed = {k: v for k, v in row.items() if k not in columns and not _follows(row, k)}
            groups[tuple(sorted(fixed.items(), key=lambda kv: kv[0]))].setdefault(float(value), i)
        for key, at in groups.items():
            if len(at) >= least:
                x = tuple(sorted(at))
                found.append(Line(axis, key, tuple(at[v] for v in x), x))
    return found


def _follows(row: Mapping[str, Scalar], name: str) -> bool:
    """Whether a list of lengths says nothing that its maximum and the batch do not."""
    longest = {"q_lens": "q_len", "kv_lens": "kv_len"}.get(name)
    return longest is not None and set(str(row[name]).split(",")) == {str(row.get(longest))}


def fit(line: Line, values: Sequence[float | None]) -> Estimate | None:
    """Exponent of ``values`` (one for each row of the table) along a line; None where too few are known."""
    pairs = [(x, v) for x, i in zip(line.x, line.rows, strict=True) if (v := values[i]) is not None and v > 0]
    if len(pairs) < LEAST_POINTS:
        return None
    return exponent(*zip(*pairs, strict=True))


def rose(before: Estimate, after: Estimate) -> bool:
    """Whether a number grows in another way than it did: intervals apart, and by enough to matter."""
    return after.low > before.high and after.value - before.value >= RISE


def knee(x: Sequence[float], y: Sequence[float]) -> Knee | None:
    """The point (one of ``x``) at which the exponent rises, None where one exponent tells the whole line.

    Both sides need three points, the knee among them; of all places the one that leaves the least unexplained.
    """
    pairs = sorted((a, b) for a, b in zip(x, y, strict=True) if a > 0 and b > 0)
    best: tuple[float, Knee] | None = None
    for at in range(LEAST_POINTS - 1, len(pairs) - LEAST_POINTS + 1):
        sides = pairs[: at + 1], pairs[at:]
        before, after = (exponent(*zip(*side, strict=True)) for side in sides)
        if rose(before, after):
            left = sum(_unexplained(side) for side in sides)
            if best is None or left < best[0]:
                best = left, Knee(pairs[at][0], before, after)
    return best[1] if best else None


def _unexplained(pairs: Sequence[tuple[float, float]]) -> float:
    logs = np.log(np.array(pairs))
    slope, level = np.polyfit(logs[:, 0], logs[:, 1], 1)
    return float(np.sum((logs[:, 1] - slope * logs[:, 0] - level) ** 2)) if math.isfinite(slope) else math.inf
