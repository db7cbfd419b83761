"""What one night may differ from the next when nothing has changed.

Each series has a level, a scale and an autocorrelation, learnt from its recent past; scale and autocorrelation lean
on the suite the more, the fewer nights there are. What is left over, the innovations in units of the scale, is
pooled into one density with heavy tails: spikes, second modes and skewness are then part of the expectation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage, stats

from .batch import Array, Bools, Ints

_REACH, _STEP = 60.0, 0.05
_GRID = np.arange(-_REACH, _REACH + _STEP / 2, _STEP)
_HEAVY = np.asarray(stats.t.pdf(_GRID, 3))
_CELL = 0.02


@dataclass(frozen=True, slots=True)
class NoiseOptions:
    """``baseline`` nights before the newest are learnt from; ``gap`` newest are kept out, fewer on short history.

    ``clip``, ``spike``: reach in robust scales of values for the level, of innovations for the scale. ``lean_rho``:
    nights' worth of the suite's autocorrelation. ``bandwidth``: of the density, in units of asinh. ``heavy``: least
    share of a t distribution with 3 degrees of freedom, and ``prior`` innovations' worth of it. ``many`` innovations
    are needed to know the largest.
    """

    baseline: int = 60
    gap: int = 22
    gap_share: float = 0.25
    least: int = 4
    clip: float = 3.0
    spike: float = 5.0
    lean_rho: float = 60.0
    bandwidth: float = 0.08
    heavy: float = 0.002
    prior: float = 40.0
    floor: float = 0.002
    many: int = 1000


@dataclass(frozen=True)
class Noise:
    """Noise of a suite. Arrays [series] but for ``table``: log density on the grid of innovations.

    ``level`` and ``scale`` are on the scale of the values given (logarithms); ``scale`` is that of one innovation.
    ``count``: nights learnt from, between the columns ``begin`` and ``last`` [series]; ``known``: enough of them.
    ``largest`` innovation that the suite's past holds, infinite where the past is too short to say.
    """

    level: Array
    scale: Array
    rho: Array
    count: Ints
    known: Bools
    table: Array
    last: Ints
    begin: int
    largest: float = np.inf

    def part(self, pick: slice | Ints) -> Noise:
        """The noise of some of the series."""
        return Noise(self.level[pick], self.scale[pick], self.rho[pick], self.count[pick], self.known[pick],
                     self.table, self.last[pick], self.begin, self.largest)  # fmt: skip

    def log_density(self, x: Array) -> Array:
        """Log density at innovations ``x`` of any shape, in units of the scale."""
        cell = np.clip((x + _REACH) / _STEP + 0.5, 0, len(_GRID) - 1).astype(np.int32)
        return np.asarray(self.table[cell])

    def innovations(self, x: Array, inflate: Array | None = None) -> Array:
        """Innovations of ``x`` [series, nights], one column fewer; NaN where a night is missing.

        After a gap there is no neighbour to lean on: the value itself counts, at the wider scale that it has.
        ``inflate`` [series, nights] >= 1 widens nights that were measured with more error than usual.
        """
        d = x - self.level[:, None]
        e = (d[:, 1:] - self.rho[:, None] * d[:, :-1]) / self.scale[:, None]
        alone = ~np.isfinite(d[:, :-1]) & np.isfinite(d[:, 1:])
        if alone.any():
            e = np.where(alone, d[:, 1:] * np.sqrt(1 - self.rho**2)[:, None] / self.scale[:, None], e)
        return np.asarray(e if inflate is None else e / inflate[:, 1:])


def fit_noise(x: Array, options: NoiseOptions = NoiseOptions(), *, first: Ints | None = None, pooled: bool) -> Noise:
    """Noise of ``x`` [series, nights], logarithms, newest last, NaN for gaps.

    ``first`` [series]: earliest column that belongs to today's level. ``pooled``: the rows are one suite.
    """
    nights = x.shape[1]
    finite = np.isfinite(x)
    born = np.where(finite.any(axis=1), finite.argmax(axis=1), nights)
    if first is not None:
        born = np.maximum(born, first)
    gap = np.clip(((nights - born) * options.gap_share).astype(np.int64), 2, options.gap)
    last = np.maximum(nights - gap, 0)
    begin = max(0, nights - options.gap - options.baseline)
    end = max(int(last.max(initial=0)), begin)
    column = np.arange(begin, end)
    inside = (column >= np.maximum(born, last - options.baseline)[:, None]) & (column < last[:, None])
    past = np.where(inside, x[:, begin:end], np.nan)
    count = np.isfinite(past).sum(axis=1)
    known = count >= options.least
    level, rest = _level(past, count, known, options)
    rho = _rho(rest, count, known, options, pooled)
    e = rest[:, 1:] - rho[:, None] * rest[:, :-1]
    scale = _scale(e, known, options, pooled)
    # Residuals around a level that was learnt from themselves are too small by this much.
    z = e / scale[:, None] * np.sqrt(count / np.maximum(count - 1, 1))[:, None]
    shared = z[known] if pooled else z[:0]
    held = np.abs(shared[np.isfinite(shared)])
    largest = float(held.max()) if len(held) >= options.many else np.inf
    return Noise(level, scale, rho, count, known, _table(shared, options), last, begin, largest)


def _level(past: Array, count: Ints, known: Bools, options: NoiseOptions) -> tuple[Array, Array]:
    """A clipped mean: unlike a median it does not jump when a second mode gets the majority."""
    level = row_median(past)
    rest = past - level[:, None]
    spread = np.maximum(1.4826 * row_median(np.abs(rest)), options.floor / 4)
    typical = float(np.median(spread[known])) if known.any() else 0.01
    reach = options.clip * np.sqrt(np.where(np.isfinite(spread), spread, typical) * typical)
    shift = np.clip(np.nan_to_num(rest), -reach[:, None], reach[:, None]).sum(axis=1) / np.maximum(count, 1)
    level = level + shift
    return level, past - level[:, None]


def _rho(rest: Array, count: Ints, known: Bools, options: NoiseOptions, pooled: bool) -> Array:
    spread = np.maximum(1.4826 * row_median(np.abs(rest)), options.floor / 4)
    z = np.clip(np.nan_to_num(rest / spread[:, None]), -3, 3)
    pairs = np.maximum(count - 1, 0)
    square = (z * z).sum(axis=1) / np.maximum(count, 1)
    own = (z[:, 1:] * z[:, :-1]).sum(axis=1) / np.maximum(pairs, 1) / np.maximum(square, 1e-9)
    own = own + (1 + 3 * np.clip(own, 0, 1)) / np.maximum(count, 4)
    weight = np.where(known, pairs, 0).astype(float)
    mean = float((weight * own).sum() / max(weight.sum(), 1.0)) if pooled else 0.0
    lean = options.lean_rho if pooled else options.lean_rho / 4
    return np.asarray(np.clip((pairs * own + lean * mean) / (pairs + lean), 0.0, 0.9))


def _scale(e: Array, known: Bools, options: NoiseOptions, pooled: bool) -> Array:
    """Mean absolute innovation, spikes clipped, leaning on the suite as far as the suite is alike."""
    finite = np.isfinite(e)
    n = np.maximum(finite.sum(axis=1), 1)
    size = np.abs(np.nan_to_num(e))
    robust = np.maximum(1.4826 * row_median(np.where(finite, size, np.nan)), options.floor / 8)
    reach = options.spike * np.where(np.isfinite(robust), robust, np.inf)
    own = 1.2533 * np.where(finite, np.minimum(size, reach[:, None]), 0.0).sum(axis=1) / n
    log_own = np.log(np.maximum(own, options.floor / 4))
    sampling = 0.8 / n
    if pooled and known.sum() > 3:
        middle = float(np.median(log_own[known]))
        between = max(float(np.var(log_own[known]) - sampling[known].mean()), 0.003)
    else:
        middle, between = float(np.log(0.01)), 1.0
    share = np.where(known, between / (between + sampling), 0.0)
    return np.asarray(np.maximum(np.exp(share * log_own + (1 - share) * middle), options.floor / 2))


def _table(z: Array, options: NoiseOptions) -> Array:
    """Log density of innovations on the grid: a kernel estimate in asinh units, whose kernel widens in the tails."""
    z = z[np.isfinite(z)]
    edges = np.arange(-5.5, 5.5 + _CELL / 2, _CELL)
    counts = np.histogram(np.arcsinh(z), edges)[0].astype(float)
    smooth = ndimage.gaussian_filter1d(counts, options.bandwidth / _CELL, mode="constant")
    density = np.interp(np.arcsinh(_GRID), (edges[1:] + edges[:-1]) / 2, smooth / (max(len(z), 1) * _CELL))
    heavy = options.heavy + (1 - options.heavy) * options.prior / (options.prior + len(z))
    logs: Array = np.log((1 - heavy) * density / np.sqrt(1 + _GRID**2) + heavy * _HEAVY + 1e-12)
    return logs


def row_median(x: Array) -> Array:
    """Median of each row without its NaN; NaN for rows of nothing else."""
    if not x.shape[1]:
        return np.full(len(x), np.nan)
    count = np.isfinite(x).sum(axis=1)
    if (count == x.shape[1]).all():
        return np.asarray(np.median(x, axis=1))
    ordered = np.sort(np.where(np.isfinite(x), x, np.inf), axis=1)
    every = np.arange(len(x))
    middle = (
        ordered[every, np.maximum(count - 1, 0) // 2] + ordered[every, np.maximum(count, 1) // 2 - (count == 0)]
    ) / 2
    return np.where(count > 0, middle, np.nan)
