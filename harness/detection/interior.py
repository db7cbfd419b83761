"""Change points inside a history: break too often, then take back what the evidence does not carry.

Values are clipped to a running median, so that a spike is no step. Breaks of a partition are weighed by a
two-sample t over the neighbourhood on either side, with a variance that leans on the whole series, fewer effective
points under autocorrelation, and less credit for short segments. The weakest break goes first, and its neighbours
are weighed anew, all series at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .batch import Array, Batch, Bools, Ints, lag_one, running_median, step_noise
from .partition import PartitionOptions, partition, places


@dataclass(frozen=True, slots=True)
class InteriorOptions:
    """Chosen once, for every kind of series.

    ``median``, ``clip``: width of the running median and distance kept around it, in units of noise. ``side``:
    points looked at on each side of a break; the farthest weighs ``far`` of the nearest. ``z``: evidence a break
    needs. ``short``, ``credit``: a side of m < short points counts (m / short) ** credit. ``relevant``: smallest
    relative step. ``lean``: points' worth of the series' own variance; ``lean_rho`` likewise for autocorrelation.
    ``raw``: share of the step that the medians of unclipped values must show.
    """

    median: int = 15
    clip: float = 3.0
    floor: float = 0.002
    side: int = 32
    far: float = 0.2
    z: float = 4.9
    short: int = 20
    credit: float = 0.25
    relevant: float = 0.008
    lean: float = 60.0
    lean_rho: float = 100.0
    rho_share: float = 0.6
    rho_points: float = 15.0
    rho_pooled: float = 60.0
    rho_most: float = 0.75
    raw: float = 0.4
    move: int = 8
    partition: PartitionOptions = field(default_factory=PartitionOptions)


@dataclass(frozen=True)
class Prepared:
    """A batch with what weighing needs: clipped values [points], noise scale and autocorrelation [series]."""

    batch: Batch
    clipped: Array
    scale: Array
    rho: Array
    same: Array


@dataclass(frozen=True)
class Weighed:
    """Evidence for each break: ``z`` as judged, ``step`` after minus before, its standard error ``error``."""

    z: Array
    step: Array
    error: Array


def prepare(batch: Batch, options: InteriorOptions, *, pooled: bool) -> Prepared:
    """Clip and measure the noise. ``pooled``: the series are one suite and share the shape of their noise."""
    scale, same = step_noise(batch, options.floor)
    middle = running_median(batch.y, batch.start, options.median)
    reach = options.clip * scale[batch.ids]
    clipped = np.clip(batch.y, middle - reach, middle + reach)
    own, n = lag_one(clipped, batch), batch.count
    if pooled and len(n) > 1:
        # One suite, one machine: the mean over all series is known far better than any single one.
        weight = np.where(n > 4, n, 0).astype(float)
        mean = float((weight * own).sum() / max(weight.sum(), 1.0))
        rho = (n * own + options.rho_pooled * mean) / (n + options.rho_pooled)
    else:
        rho = options.rho_share * own * n / (n + options.rho_points)
    return Prepared(batch, clipped, scale, np.clip(rho, 0.0, options.rho_most), same)


def interior(prepared: Prepared, options: InteriorOptions, ignore: Bools | None = None) -> tuple[Ints, Weighed]:
    """Flat positions of the change points, sorted, and their evidence. ``ignore`` [series]: not looked at."""
    batch = prepared.batch
    z = prepared.clipped / prepared.scale[batch.ids]
    at = places(z, batch.start, options.partition)
    if ignore is not None and ignore.any():
        at = at[~ignore[batch.ids[at]]]
    breaks = partition(z, batch.start, at, options.partition)
    kept = take_back(breaks, prepared, options)
    kept = _settle(kept, prepared, options)
    return kept, weigh(kept, *_neighbours(kept, batch), prepared, options)


def take_back(breaks: Ints, prepared: Prepared, options: InteriorOptions) -> Ints:
    """Remove the weakest breaks until every one that is left stands. In a round, every local minimum goes."""
    batch = prepared.batch
    z = np.full(len(breaks), np.nan)
    while len(breaks):
        new = np.flatnonzero(np.isnan(z))
        left, right = _neighbours(breaks, batch)
        z[new] = weigh(breaks[new], left[new], right[new], prepared, options).z
        series = batch.ids[breaks]
        joined = np.concatenate([[False], series[1:] == series[:-1]])
        before = np.where(joined, np.concatenate([[np.inf], z[:-1]]), np.inf)
        after = np.where(np.append(joined[1:], False), np.append(z[1:], np.inf), np.inf)
        # Ties fall to the earlier break, so that no two neighbours go in one round.
        gone = (z < options.z) & (z < before) & (z <= after)
        if not gone.any():
            break
        touched = np.append(gone[1:], False) & np.append(joined[1:], False) | np.concatenate([[False], gone[:-1]])
        z[touched] = np.nan
        breaks, z = breaks[~gone], z[~gone]
    return breaks


def _neighbours(breaks: Ints, batch: Batch) -> tuple[Ints, Ints]:
    """Begin of the segment before and end of the segment after each break."""
    series = batch.ids[breaks]
    left = np.maximum(np.concatenate([[-1], breaks[:-1]]), batch.start[series])
    right = np.minimum(np.append(breaks[1:], np.iinfo(np.int64).max), batch.start[series + 1])
    return left, right


def weigh(at: Ints, left: Ints, right: Ints, prepared: Prepared, options: InteriorOptions) -> Weighed:
    """Evidence that the level changes at ``at`` between ``left`` (inclusive) and ``right`` (exclusive)."""
    if not len(at):
        return Weighed(np.zeros(0), np.zeros(0), np.ones(0))
    series = prepared.batch.ids[at]
    rho0 = prepared.rho[series]
    variance0 = prepared.scale[series] ** 2 / (1 - rho0)
    k = np.arange(options.side)
    fade = 1 - (1 - options.far) * k / options.side
    before = _Side(at[:, None] - 1 - k, at[:, None] - 1 - k >= left[:, None], left, fade, prepared)
    after = _Side(at[:, None] + k, at[:, None] + k < right[:, None], at, fade, prepared)
    own = np.maximum(before.effective + after.effective - 2, 0.0)
    variance = (before.spread + after.spread + options.lean * variance0) / (own + options.lean)
    extra = options.lean_rho * variance0
    rho = (before.product + after.product + extra * rho0) / (before.square + after.square + extra)
    # Residuals around a mean of few points look less correlated than they are.
    rho = rho + (1 + 3 * np.maximum(rho, 0.0)) / np.maximum(before.points + after.points, 4)
    rho = np.clip(rho, 0.0, options.rho_most)
    step = after.mean - before.mean
    error = np.sqrt(variance * (1 + rho) / (1 - rho) * (1 / before.effective + 1 / after.effective))
    z = normal_from_t(np.abs(step) / error, own + options.lean)
    fewest = np.minimum(before.points, after.points)
    z = z * np.minimum(1.0, fewest / options.short) ** options.credit
    shown = (after.median - before.median) * np.sign(step)
    z = z * np.clip(shown / (options.raw * np.abs(step) + 1e-12), 0.0, 1.0)
    return Weighed(np.where(np.abs(step) < options.relevant, 0.0, z), step, error)


class _Side:
    """Weighted moments of the points on one side of each break: arrays [breaks]."""

    def __init__(self, index: Ints, known: Bools, spare: Ints, fade: Array, prepared: Prepared) -> None:
        index = np.where(known, index, spare[:, None])
        value = prepared.clipped[index]
        weight = fade * known
        total = weight.sum(axis=1)
        self.points = known.sum(axis=1)
        self.mean = (weight * value).sum(axis=1) / total
        rest = np.where(known, value - self.mean[:, None], 0.0)
        self.effective = total**2 / (weight**2).sum(axis=1)
        self.spread = (weight * rest * rest).sum(axis=1) / total * self.effective
        self.product = (rest[:, 1:] * rest[:, :-1]).sum(axis=1)
        self.square = (rest * rest).sum(axis=1)
        self.median = _masked_median(prepared.batch.y[index], known, self.points)


def _masked_median(x: Array, known: Bools, count: Ints) -> Array:
    ordered = np.sort(np.where(known, x, np.inf), axis=1)
    every = np.arange(len(x))
    return np.asarray((ordered[every, (count - 1) // 2] + ordered[every, count // 2]) / 2)


def normal_from_t(t: Array, dof: Array) -> Array:
    """The normal deviate with the tail of t at ``dof`` degrees of freedom (Wallace's approximation)."""
    return np.asarray((8 * dof + 1) / (8 * dof + 3) * np.sqrt(dof * np.log1p(t * t / dof)))


def _settle(breaks: Ints, prepared: Prepared, options: InteriorOptions) -> Ints:
    """Move each break to where a step fits best between its neighbours, within ``move`` points.

    Fitted to what is new in each point given the one before, so that autocorrelation does not smear the place: a
    step of size one shows there as 1 at its first point and as 1 - rho after it.
    """
    if not len(breaks):
        return breaks
    batch = prepared.batch
    left, right = _neighbours(breaks, batch)
    left, right = np.maximum(left, breaks - options.side), np.minimum(right, breaks + options.side)
    of_point = prepared.rho[batch.ids]
    fresh = prepared.clipped - of_point * np.concatenate([[0.0], prepared.clipped[:-1]])
    begins = batch.start[:-1][batch.count > 0]
    fresh[begins] = prepared.clipped[begins] * (1 - of_point[begins])
    total = np.concatenate([[0.0], np.cumsum(fresh)])
    later = 1 - prepared.rho[batch.ids[breaks]]
    best, gain = breaks.copy(), np.full(len(breaks), -1.0)
    least = options.partition.shortest
    for shift in range(-options.move, options.move + 1):
        at = breaks + shift
        fits = (at - left >= least) & (right - at >= least)
        at = np.where(fits, at, breaks)
        n, after = right - left, right - at - 1
        mass = 1 + later * after
        product = fresh[at] + later * (total[right] - total[at + 1]) - mass / n * (total[right] - total[left])
        size = np.where(fits, product**2 / np.maximum(1 + later**2 * after - mass**2 / n, 1e-12), -1.0)
        better = size > gain
        best, gain = np.where(better, at, best), np.where(better, size, gain)
    return np.unique(best).astype(np.int64)
