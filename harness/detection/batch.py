"""Many series of any length as one flat array, so that every step is a few passes of numpy over all of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Batch:
    """Series i is ``y[start[i]:start[i + 1]]``, centred on its median, gaps left out.

    ``y`` [points]: logarithms where ``log[i]``, else values divided by ``unit[i]``, their typical size.
    ``row`` [points]: index in the series as it was given, gaps included. ``ids`` [points]: number of the series.
    ``centre`` [series] is what was subtracted.
    """

    y: Array
    start: Ints
    row: Ints
    ids: Ints
    log: Bools
    unit: Array
    centre: Array

    @property
    def count(self) -> Ints:
        """Points per series."""
        return np.diff(self.start)

    def __len__(self) -> int:
        return len(self.start) - 1


def flatten(values: Sequence[Array]) -> tuple[Array, Ints]:
    """Values of all series end to end, and where each begins: [points], [series + 1]."""
    lengths = np.fromiter((len(v) for v in values), dtype=np.int64, count=len(values))
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    flat = np.concatenate([np.asarray(v, dtype=float) for v in values]) if len(values) else np.zeros(0)
    return flat, start


def make_batch(flat: Array, start: Ints) -> Batch:
    """A batch of the finite values of series that lie end to end: ``flat`` [points], ``start`` [series + 1]."""
    lengths = np.diff(start)
    ids = np.repeat(np.arange(len(lengths)), lengths)
    row = np.arange(len(flat)) - np.repeat(start[:-1], lengths)
    finite = np.isfinite(flat)
    if not finite.all():
        flat, ids, row = flat[finite], ids[finite], row[finite]
    count = np.bincount(ids, minlength=len(lengths)).astype(np.int64)
    begin = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    log = reduce_by(np.minimum, flat, begin, -1.0) > 0
    unit = np.ones(len(lengths))
    if not log.all():
        size = medians(np.abs(flat), begin)
        mean = np.bincount(ids, np.abs(flat), len(lengths)) / np.maximum(count, 1)
        unit = np.where(log, 1.0, np.where(size > 0, size, np.where(mean > 0, mean, 1.0)))
    of_log = log[ids]
    y = np.log(np.where(of_log, flat, 1.0))
    if not of_log.all():
        # Squares of what is left must stay finite.
        y = np.where(of_log, y, np.clip(flat / unit[ids], -1e100, 1e100))
    centre = medians(y, begin)
    return Batch(y - centre[ids], begin, row, ids, log, unit, centre)


def reduce_by(ufunc: np.ufunc, x: Array, start: Ints, empty: float) -> Array:
    """``ufunc.reduce`` over each series; ``empty`` for those without points."""
    out = np.full(len(start) - 1, empty)
    have = np.diff(start) > 0
    if have.any():
        out[have] = ufunc.reduceat(x, start[:-1][have])
    return out


def medians(x: Array, start: Ints) -> Array:
    """Median of each series; 0 for those without points."""
    n = np.diff(start)
    out = np.zeros(len(n))
    # Series of one length are a matrix, which numpy partitions much faster than it sorts ragged ones.
    for length in _common(n):
        of = np.flatnonzero(n == length)
        out[of] = np.median(x[start[of][:, None] + np.arange(length)], axis=1)
    rest = np.flatnonzero((n > 0) & ~np.isin(n, _common(n)))
    if len(rest):
        ids = np.repeat(np.arange(len(n)), n)
        pick = np.isin(ids, rest)
        sub, ids = x[pick], ids[pick]
        ordered = sub[np.lexsort((sub, ids))]
        begin = np.concatenate([[0], np.cumsum(n[rest])])[:-1]
        out[rest] = (ordered[begin + (n[rest] - 1) // 2] + ordered[begin + n[rest] // 2]) / 2
    return out


def _common(n: Ints) -> list[int]:
    """Lengths that at least eight series share, or that one very long series has."""
    lengths, how_many = np.unique(n, return_counts=True)
    return [int(k) for k, c in zip(lengths, how_many, strict=True) if k > 0 and (c >= 8 or k > 4096)][:64]


def stretches(start: Ints, points: int = 60_000) -> list[tuple[int, int]]:
    """Ranges of series with about so many points together, so that what is worked on stays in the cache."""
    total, series = int(start[-1]), len(start) - 1
    cut = np.unique(np.minimum(np.searchsorted(start, np.arange(0, total + points, points)), series))
    return [(a, b) for a, b in itertools.pairwise(cut.tolist()) if b > a]


def running_median(x: Array, start: Ints, width: int) -> Array:
    """Median over ``width`` (odd) points around each, mirrored at both ends of each series."""
    out = np.empty(len(x))
    for a, b in stretches(start):
        out[start[a] : start[b]] = _running_median(x[start[a] : start[b]], start[a : b + 1] - start[a], width)
    return out


def _running_median(x: Array, start: Ints, width: int) -> Array:
    n = np.diff(start)
    half = width // 2
    padded_n = np.where(n > 0, n + 2 * half, 0)
    ids = np.repeat(np.arange(len(n)), padded_n)
    begin = np.cumsum(padded_n) - padded_n
    at = np.arange(len(ids)) - begin[ids] - half
    size = n[ids]
    at = np.where(at < 0, -1 - at, at)
    at = np.where(at >= size, 2 * size - 1 - at, at)
    padded = x[start[ids] + np.clip(at, 0, size - 1)]
    smooth = ndimage.median_filter(padded, size=width, mode="nearest") if len(padded) else padded
    keep = np.arange(len(x)) + np.repeat(begin - start[:-1] + half, n)
    return np.asarray(smooth[keep], dtype=float)


def step_noise(batch: Batch, floor: float) -> tuple[Array, Array]:
    """Scale of each series from its successive differences, and the share of differences that are exactly zero.

    The scale is never below ``floor``, nor below half the smallest step of a series that is rounded so coarsely
    that neighbours are often equal.
    """
    d = np.abs(np.diff(batch.y, prepend=0.0))
    inner = np.ones(len(d), dtype=bool)
    inner[batch.start[:-1][batch.count > 0]] = False
    begin = np.concatenate([[0], np.cumsum(np.maximum(batch.count - 1, 0))]).astype(np.int64)
    d = d[inner]
    scale = 1.4826 / np.sqrt(2) * medians(d, begin)
    zero = d <= 1e-12
    same = reduce_by(np.add, zero.astype(float), begin, 0.0) / np.maximum(batch.count - 1, 1)
    quantum = reduce_by(np.minimum, np.where(zero, np.inf, d), begin, np.inf)
    rounded = (same > 0.2) & np.isfinite(quantum)
    return np.maximum(np.maximum(scale, floor), np.where(rounded, 0.5 * quantum, 0.0)), same


def lag_one(x: Array, batch: Batch) -> Array:
    """Lag-one autocorrelation of each series from its differences, which steps hardly touch. Not shrunk."""
    n = batch.count
    first = np.zeros(len(x), dtype=bool)
    first[batch.start[:-1][n > 0]] = True
    d = np.where(first, 0.0, np.diff(x, prepend=0.0))
    pair = d * np.concatenate([[0.0], d[:-1]])
    pair[first] = 0.0
    variance = np.bincount(batch.ids, d * d, len(n)) / np.maximum(n - 1, 1)
    product = np.bincount(batch.ids, pair, len(n)) / np.maximum(n - 2, 1)
    rho = 1 + 2 * product / np.maximum(variance, 1e-300)
    return np.where(n > 4, np.clip(rho, -1, 1), 0.0)
