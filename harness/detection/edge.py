"""The newest nights: has a series moved, so recently that a change point cannot show it yet?

For every length m of the affected stretch the log likelihood ratio of its innovations is summed and maximised over
the size of the change: a step that stays, or a slope that has grown for m nights. The alarm level is learnt from
what the same statistic did in the suite's own past.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from .batch import Array, Bools, Ints
from .noise import Noise, NoiseOptions, fit_noise, row_median


@dataclass(frozen=True, slots=True)
class EdgeOptions:
    """``steps``, ``slopes``: lengths tried, in nights; ``long`` is paid on top for steps beyond 8, ``slope``
    for slopes: less than for steps, since no single night can make one.

    ``level``: log likelihood ratio that makes a suspect, ``level_alone`` for a series without a suite. Added are
    ``short / nights`` while fewer than ``enough`` nights are known, and ``slow`` for each night that neighbours are
    worth less for being alike, which makes levels harder to know. The suite's past moves the level between ``least``
    and ``most`` towards ``rate`` false suspects per series and night; the setting counts for ``trust`` series there.
    ``shown``: share of a step that the median of its nights must show, half of it for a slope, and
    ``relevant`` in any case. ``one_night``: the newest night alone may make a suspect where it is farther out than
    anything in the suite's past; for those who measure suspects again. ``relevant``: smallest change, log scale.
    """

    steps: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 11, 14, 18)
    slopes: tuple[int, ...] = (10, 14, 18, 22)
    level: float = 7.5
    level_alone: float = 11.0
    least: float = 7.3
    most: float = 30.0
    long: float = 0.7
    slope: float = -0.8
    short: float = 120.0
    enough: int = 45
    rate: float = 4e-4
    relevant: float = 0.01
    slow: float = 0.1
    shown: float = 0.4
    sizes: int = 16
    calibrate: int = 1500
    trust: float = 40.0
    together: int = 1024
    least_alone: int = 12
    one_night: bool = False
    noise: NoiseOptions = field(default_factory=NoiseOptions)


@dataclass(frozen=True)
class Edge:
    """Per series [series]: ``hit``, ``evidence`` (log likelihood ratio), ``start`` (column), ``step`` (log scale),
    ``slope`` (it is a slope), ``level`` that the evidence had to pass."""

    hit: Bools
    evidence: Array
    start: Ints
    step: Array
    slope: Bools
    level: Array
    noise: Noise


def edge(
    x: Array, options: EdgeOptions = EdgeOptions(), *, first: Ints | None = None, pooled: bool,
    inflate: Array | None = None,
) -> Edge:  # fmt: skip
    """Judge the newest nights of ``x`` [series, nights]: logarithms, newest last, NaN for gaps.

    ``first`` [series] is the earliest column of today's level, ``inflate`` as in :meth:`Noise.innovations`.
    """
    noise = fit_noise(x, options.noise, first=first, pooled=pooled)
    series, nights = x.shape
    evidence, step = np.full(series, -np.inf), np.zeros(series)
    start, slope = np.full(series, nights), np.zeros(series, dtype=bool)
    reach = min(max(*options.steps, *options.slopes), nights - 1)
    e = noise.innovations(x[:, nights - reach - 1 :], None if inflate is None else inflate[:, nights - reach - 1 :])
    for i in range(0, series, options.together):
        part = slice(i, i + options.together)
        evidence[part], m, step[part], slope[part] = _strongest(e[part], noise.part(part), options)
        start[part] = nights - m
    level = options.level_alone
    if pooled:
        level = _level(x, first, noise, options)
    least = options.noise.least if pooled else options.least_alone
    alike = (1 + noise.rho) / (1 - noise.rho) - 1
    levels = (
        level
        + options.slow * alike
        + options.short * np.maximum(1 / np.maximum(noise.count, 1) - 1 / options.enough, 0.0)
    )
    hit = (noise.count >= least) & (evidence > levels)
    pick = np.flatnonzero(hit)
    if len(pick):
        # Which night it began is asked of every length, not only of those that keep the statistic cheap.
        fine = replace(options, steps=tuple(range(1 if options.one_night else 2, reach + 1)))
        _, m, step[pick], slope[pick] = _strongest(e[pick], noise.part(pick), fine)
        start[pick] = nights - m
        # A series whose own past looked as bad without a change is no suspect for doing so again.
        levels[pick] = np.maximum(levels[pick], past_maxima(x, pick, first, noise, options, start[pick] - 1))
        hit[pick] = (evidence[pick] > levels[pick]) & _shown(x[pick], pick, start, step, slope, noise, options)
    return Edge(hit, evidence, start, step, slope, levels, noise)


def _shown(x: Array, pick: Ints, start: Ints, step: Array, slope: Bools, noise: Noise, options: EdgeOptions) -> Bools:
    """Whether the median of the changed nights lies where the change says: two modes can trade shares without."""
    after = np.where(np.arange(x.shape[1]) >= start[pick][:, None], x, np.nan)
    moved = (row_median(after) - noise.level[pick]) * np.sign(step[pick])
    least = options.shown * np.where(slope[pick], 0.5, 1.0) * np.abs(step[pick])
    return np.asarray(moved >= np.maximum(least, options.relevant))


def sizes(options: EdgeOptions) -> Array:
    """Sizes of a change tried, in units of the scale of one innovation."""
    up = np.geomspace(0.7, 40.0, options.sizes)
    return np.concatenate([-up[::-1], up])


def ratios(e: Array, part: Noise, shift: Array) -> tuple[Array, Array, Array]:
    """Log likelihood ratios of single innovations ``e`` [series, nights] for changes ``shift`` [sizes, series].

    Returns [sizes, series, nights] for the first night of a step and for later ones, and the log density without.
    """
    known, e0 = np.isfinite(e), np.nan_to_num(e)
    plain = np.where(known, part.log_density(e0), 0.0)
    first = part.log_density(e0[None] - shift[:, :, None])
    later = part.log_density(e0[None] - (shift * (1 - part.rho))[:, :, None])
    return np.where(known, first - plain, 0.0), np.where(known, later - plain, 0.0), plain


def discount(shape: Array, part: Noise) -> Array:
    """Share of the evidence that is left because the level before is an estimate too: [series].

    ``shape`` [series, m]: what the change does to the m innovations.
    """
    own = (shape**2).sum(axis=1)
    with_level = (1 - part.rho) * shape.sum(axis=1)
    of_level = (1 - part.rho) ** 2 * (part.count + shape.shape[1])
    return np.asarray(np.clip(1 - with_level**2 / np.maximum(own * of_level, 1e-12), 0.0, 1.0))


def step_shape(part: Noise, m: int) -> Array:
    """Innovations of a step of size one over m nights: [series, m]."""
    shape = np.repeat((1 - part.rho)[:, None], m, axis=1)
    shape[:, 0] = 1.0
    return shape


def _strongest(e: Array, part: Noise, options: EdgeOptions) -> tuple[Array, Ints, Array, Bools]:
    series, reach = e.shape
    size = sizes(options)
    shift = np.repeat(size[:, None], series, axis=1)
    first, later, plain = ratios(e, part, shift)
    summed = np.cumsum(later[:, :, ::-1], axis=2)
    known = np.isfinite(e)
    best, length = np.full(series, -np.inf), np.zeros(series, dtype=np.int64)
    step, slope = np.zeros(series), np.zeros(series, dtype=bool)
    every = np.arange(series)

    def take(value: Array, m: int, is_slope: bool) -> None:
        nonlocal best, length, step, slope
        j = value.argmax(axis=0)
        told = size[j] * part.scale
        # One night cannot tell a step from a spike, and the newest must be there to be judged.
        enough = (np.abs(told) >= options.relevant) & (known[:, -m:].sum(axis=1) >= 2) & known[:, -1]
        paid = options.slope if is_slope else options.long if m > 8 else 0.0
        found = np.where(enough, value[j, every] - paid, -np.inf)
        better = found > best
        best, length = np.where(better, found, best), np.where(better, m, length)
        step, slope = np.where(better, told, step), np.where(better, is_slope, slope)

    if options.one_night:
        out = known[:, -1] & (np.abs(np.nan_to_num(e[:, -1])) > part.largest)
        value = first[:, :, -1] * discount(step_shape(part, 1), part)
        best = np.where(out, value.max(axis=0), -np.inf)
        length, step = np.ones(series, dtype=np.int64), size[value.argmax(axis=0)] * part.scale
        best = np.where(np.abs(step) >= options.relevant, best, -np.inf)
    for m in options.steps:
        if 1 < m <= reach:
            take((first[:, :, -m] + summed[:, :, m - 2]) * discount(step_shape(part, m), part), m, False)
    for m in options.slopes:
        if m <= reach:
            grown = np.arange(1, m + 1) / m
            shape = grown - part.rho[:, None] * (grown - 1 / m)
            recent = np.nan_to_num(e[:, -m:])
            value = np.stack([
                np.where(known[:, -m:], part.log_density(recent - s * shape) - plain[:, -m:], 0.0).sum(axis=1)
                for s in size
            ])  # fmt: skip
            take(value * discount(shape, part), m, True)
    return best, length, step, slope


def _level(x: Array, first: Ints | None, noise: Noise, options: EdgeOptions) -> float:
    """Alarm level from the largest value that the statistic took in each series' past.

    The upper quarter of those maxima is extended as an exponential tail to the aimed rate of false suspects.
    """
    pick = np.flatnonzero(noise.count >= 24)
    if len(pick) < 20:
        return options.level
    if len(pick) > options.calibrate:
        pick = pick[np.linspace(0, len(pick) - 1, options.calibrate).astype(np.int64)]
    largest = past_maxima(x, pick, first, noise, options)
    upper = float(np.quantile(largest, 0.75))
    above = largest[largest >= upper] - upper
    tail = max((float(above.sum()) + 5.0) / (len(above) + 5.0), 0.5)
    # A tail far longer than a right model gives shows bursts that the model does not know: trust it even less.
    tail *= max(1.0, tail / 1.3)
    nights = float(np.median(noise.count[pick]))
    wanted = upper + tail * np.log(0.25 / (nights * options.rate)) + 0.2
    mixed = (len(pick) * wanted + options.trust * options.level) / (len(pick) + options.trust)
    return float(np.clip(mixed, options.least, options.most))


def past_maxima(
    x: Array, pick: Ints, first: Ints | None, noise: Noise, options: EdgeOptions, until: Ints | None = None
) -> Array:
    """Largest evidence for a step of up to 8 nights that the series ``pick`` gave before.

    ``until`` [picked]: column at which the past ends; that of the nights learnt from by default.
    """
    ends_at = noise.last[pick] if until is None else np.maximum(until, noise.last[pick])
    end = int(ends_at.max(initial=noise.begin))
    column = np.arange(noise.begin, end)
    inside = column < ends_at[:, None]
    if first is not None:
        inside &= column >= first[pick][:, None]
    past = np.where(inside, x[pick, noise.begin : end], np.nan)
    some = noise.part(pick)
    e = some.innovations(past)
    largest = np.zeros(len(pick))
    size = sizes(options)
    for i in range(0, len(pick), 256):
        rows = slice(i, i + 256)
        part = some.part(rows)
        begun, later, _ = ratios(e[rows], part, np.repeat(size[:, None], len(part.rho), axis=1))
        summed = np.concatenate([np.zeros_like(later[:, :, :1]), np.cumsum(later, axis=2)], axis=2)
        enough = np.abs(size)[:, None] * part.scale >= options.relevant
        for m in options.steps:
            if m <= 8 and m <= e.shape[1]:
                ends = np.arange(m, e.shape[1] + 1)
                value = begun[:, :, ends - m] + summed[:, :, ends] - summed[:, :, ends - m + 1]
                top = np.where(enough[:, :, None], value, 0.0).max(axis=(0, 2))
                largest[rows] = np.maximum(largest[rows], top)
    return largest
