"""Has a series become noisier, at the same level? A change of variance is a finding of its own, and never *slower*.

The innovations of the newest nights are weighed with the suite's own density (:mod:`noise`): as they are, and as they
would be were the noise k times as wide. Heavy tails, second modes and autocorrelation are in the density, so they are
no growth. Two nights alone make no finding, nor do steps and drift, which leave neighbouring nights as close as ever.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .batch import Array, Bools, Ints
from .noise import Noise, row_median


@dataclass(frozen=True, slots=True)
class SpreadOptions:
    """``windows``: newest nights tried. ``folds``: growth tried; ``fold`` is the least that matters.

    ``level``: log likelihood ratio that makes a finding, ``short / nights`` on top below 60 nights of history.
    ``alone``: how many of the best nights are left out of it, so that spikes are no spread. ``least`` nights must be
    known before. ``shown``: share of the growth (log) that differences of neighbouring nights must show.
    ``moved``: errors by which the level may differ, ``relevant`` (log scale) in any case. ``again``: nights for which a
    finding is not told once more.
    """

    windows: tuple[int, ...] = (6, 8, 10, 12, 14, 17, 20)
    folds: tuple[float, ...] = (1.6, 2.0, 2.6, 3.4, 4.5, 6.0, 8.0)
    fold: float = 1.8
    level: float = 6.0
    short: float = 240.0
    alone: int = 2
    least: int = 20
    shown: float = 0.7
    moved: float = 2.5
    relevant: float = 0.01
    again: int = 12


@dataclass(frozen=True)
class Spread:
    """Per series [series]: ``hit``; ``fold``, spread of the newest ``nights`` over that of the nights learnt from;
    ``evidence``, the log likelihood ratio without its best nights."""

    hit: Bools
    fold: Array
    nights: Ints
    evidence: Array


def grown_spread(
    x: Array, noise: Noise, options: SpreadOptions = SpreadOptions(), *, inflate: Array | None = None
) -> Spread:
    """Which series of ``x`` [series, nights] scatter more of late; logarithms, newest last, NaN for gaps.

    ``noise`` as fitted to ``x``, ``inflate`` as in :meth:`Noise.innovations`. Only growth that is new is a hit: what
    was one on any of the last ``again`` nights is none now.
    """
    now = _judge(x, noise, options, inflate)
    for back in range(1, options.again + 1):
        pick = np.flatnonzero(now.hit)
        if not len(pick) or x.shape[1] - back <= options.least:
            break
        wide = None if inflate is None else inflate[pick, :-back]
        now.hit[pick] &= ~_judge(x[pick, :-back], noise.part(pick), options, wide).hit
    return now


def _judge(x: Array, noise: Noise, options: SpreadOptions, inflate: Array | None) -> Spread:
    series, nights = x.shape
    evidence, fold = np.full(series, -np.inf), np.ones(series)
    length = np.zeros(series, dtype=np.int64)
    reach = min(max(options.windows), nights - 1)
    first = nights - reach - 1
    e = noise.innovations(x[:, first:], None if inflate is None else inflate[:, first:])
    usable = (noise.count >= options.least) & np.isfinite(x[:, -1])
    for m in options.windows:
        if m > reach:
            continue
        recent = e[:, -m:]
        known = np.isfinite(recent)
        e0 = np.nan_to_num(recent)
        plain = noise.log_density(e0)
        # The scale before is an estimate too: what can be told apart is worth less, the longer the window.
        share = noise.count / np.maximum(noise.count + m, 1)
        for k in options.folds:
            value = np.sort(np.where(known, noise.log_density(e0 / k) - np.log(k) - plain, 0.0), axis=1)
            total = share * value[:, : m - options.alone].sum(axis=1)
            better = usable & (known.sum(axis=1) >= 0.7 * m) & (total > evidence)
            evidence[better], fold[better], length[better] = total[better], k, m
    level = options.level + options.short * np.maximum(1 / np.maximum(noise.count, 1) - 1 / 60, 0.0)
    hit = (evidence > level) & (fold >= options.fold)
    pick = np.flatnonzero(hit)
    hit[pick] = _only_wider(x[pick], fold[pick], length[pick], options)
    return Spread(hit, fold, length, evidence)


def _only_wider(x: Array, fold: Array, length: Ints, options: SpreadOptions) -> Bools:
    """Whether neighbouring nights lie farther apart than before, around the same level."""
    column = np.arange(x.shape[1])
    recent = column >= x.shape[1] - length[:, None]
    new, old = np.where(recent, x, np.nan), np.where(recent, np.nan, x)
    steps = [row_median(np.abs(np.diff(side, axis=1))) for side in (old, new)]
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.log(steps[1] / steps[0]) >= options.shown * np.log(fold)
    deviation = 1.4826 * row_median(np.abs(new - row_median(new)[:, None]))
    error = deviation * np.sqrt(np.pi / 2 / length)
    shift = np.abs(row_median(new) - row_median(old))
    return np.asarray(apart & (shift <= np.maximum(options.moved * error, options.relevant)))
