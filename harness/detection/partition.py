"""Where could a series change? Exact least-squares partitioning over a short list of places.

A best partition breaks only where means on both sides differ, so places at which no short or long window sees a
difference are left out first. What remains is few enough for the exact recursion over all series at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from .batch import Array, Ints, stretches


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """``penalty`` times log n is paid for each break, in units of variance. ``windows`` and ``least`` choose places.

    ``block``: longer series are partitioned in blocks of so many points, which keeps the work linear; block ends
    come out as breaks, and what follows removes them where nothing changes.
    """

    penalty: float = 5.0
    shortest: int = 3
    windows: tuple[int, ...] = (3, 5, 10, 20)
    least: float = 2.0
    block: int = 4096
    together: int = 1024


def places(z: Array, start: Ints, options: PartitionOptions = PartitionOptions()) -> Ints:
    """Positions in the flat array at which a window of some width sees a local maximum of the difference of means.

    ``z`` [points] is in units of the noise.
    """
    found = [
        _places(z[start[a] : start[b]], start[a : b + 1] - start[a], options) + start[a] for a, b in stretches(start)
    ]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _places(z: Array, start: Ints, options: PartitionOptions) -> Ints:
    n = np.diff(start)
    begin, end = np.repeat(start[:-1], n), np.repeat(start[1:], n)
    t = np.arange(len(z))
    total = np.concatenate([[0.0], np.cumsum(z)])
    inside = (t - begin >= options.shortest) & (end - t >= options.shortest)
    found = np.zeros(len(z), dtype=bool)
    for width in options.windows:
        left, right = np.maximum(t - width, begin), np.minimum(t + width, end)
        nl, nr = np.maximum(t - left, 1), np.maximum(right - t, 1)
        jump = (total[right] - total[t]) / nr - (total[t] - total[left]) / nl
        size = np.where(inside, np.abs(jump) * np.sqrt(nl * nr / (nl + nr)), 0.0)
        found |= (size > options.least) & (size >= ndimage.maximum_filter1d(size, 2 * max(width // 2, 1) + 1))
    return np.flatnonzero(found).astype(np.int64)


def partition(z: Array, start: Ints, at: Ints, options: PartitionOptions = PartitionOptions()) -> Ints:
    """Breaks of the cheapest partition of each series whose breaks all lie in ``at`` (sorted flat positions).

    The cost is the sum of squares around segment means plus ``penalty * log n`` for each segment.
    """
    begin, end = _blocks(start, options.block)
    total = np.concatenate([[0.0], np.cumsum(z)])
    row = np.searchsorted(begin, at, side="right") - 1
    fits = (at - begin[row] >= options.shortest) & (end[row] - at >= options.shortest) if len(at) else at > 0
    at, row = at[fits], row[fits]
    count = np.bincount(row, minlength=len(begin))
    first = np.cumsum(count) - count
    found = [np.setdiff1d(begin, start)]
    # Blocks with similar numbers of places go together, so that little is padded.
    order = np.argsort(count, kind="stable")
    order = order[count[order] > 0]
    for i in range(0, len(order), options.together):
        rows = order[i : i + options.together]
        width = int(count[rows].max())
        j = np.arange(width)
        known = j < count[rows][:, None]
        inner = np.where(known, at[np.where(known, first[rows][:, None] + j, 0)], end[rows][:, None])
        position = np.concatenate([begin[rows][:, None], inner, end[rows][:, None]], axis=1)
        price = options.penalty * np.log(np.maximum(end - begin, 3))[rows]
        found.append(_cheapest(position, total[position], price, count[rows] + 1, options.shortest))
    return np.unique(np.concatenate(found)).astype(np.int64)


def _blocks(start: Ints, block: int) -> tuple[Ints, Ints]:
    n = np.diff(start)
    if not len(n) or n.max() <= block:
        have = n > 0
        return start[:-1][have], start[1:][have]
    pieces = np.maximum(-(-n // block), 1)
    series = np.repeat(np.arange(len(n)), pieces)
    within = np.arange(len(series)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = start[:-1][series] + within * block
    end = np.minimum(begin + block, start[1:][series])
    have = end > begin
    return begin[have], end[have]


def _cheapest(position: Ints, total: Array, price: Array, last: Ints, shortest: int) -> Ints:
    """The recursion F(k) = min over j < k of F(j) + cost(j, k) + price, for all rows at once.

    ``position`` and ``total`` [rows, places]: begin, places, end (repeated as padding), and cumulative sums there.
    """
    rows, width = position.shape
    every = np.arange(rows)
    where = position.astype(float)
    best = np.zeros((rows, width))
    origin = np.zeros((rows, width), dtype=np.int64)
    for k in range(1, width):
        length = where[:, k : k + 1] - where[:, :k]
        gain = (total[:, k : k + 1] - total[:, :k]) ** 2 / np.maximum(length, 1.0)
        cost = np.where(length >= shortest, best[:, :k] - gain, np.inf)
        origin[:, k] = np.argmin(cost, axis=1)
        best[:, k] = cost[every, origin[:, k]] + price
    at = last
    breaks: list[Ints] = []
    while True:
        at = origin[every, at]
        alive = at > 0
        if not alive.any():
            return np.concatenate(breaks) if breaks else np.zeros(0, dtype=np.int64)
        breaks.append(position[every[alive], at[alive]])
