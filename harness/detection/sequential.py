"""Base against head, pair by pair, looked at after every pair: stop as soon as the question is settled.

Each pair of interleaved samples gives one difference of logarithms. A bet that the differences lie above (or below)
a value grows like a wealth process: where the value is the true centre, wealth is a martingale, so it passes 1 / alpha
with probability alpha at most, however often one looks (Ville's inequality). Two bets are averaged: on the signs,
which asks nothing of the noise but that differences are as often above their centre as below, and on signed ranks,
which asks that they are symmetric and needs far fewer pairs. Values that cannot be rejected form the interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from harness.model.terms import VerdictKind

from .batch import Array


@dataclass(frozen=True, slots=True)
class SequentialOptions:
    """``alpha``: error over all looks, shared over a ``family`` of cases. ``relevant``: smallest change worth telling.

    ``futile``: stop as *ambiguous* after so many pairs. ``bets``: stakes on signed ranks, as shares of the wealth.
    """

    alpha: float = 0.05
    relevant: float = 0.02
    family: int = 1
    futile: int = 96
    bets: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 0.95)


@dataclass(frozen=True, slots=True)
class Decision:
    """``verdict`` is None while the question is open. ``ratio`` head / base with an interval that is valid at every
    look; ``p`` likewise, before sharing over a family. ``scale`` says what was compared."""

    verdict: VerdictKind | None
    ratio: float
    low: float
    high: float
    p: float
    pairs: int
    scale: str = "log"


def decide(
    base: Sequence[float], head: Sequence[float], options: SequentialOptions = SequentialOptions(), *,
    better: str = "lower",
) -> Decision:  # fmt: skip
    """Judge the pairs so far, in the order in which they were taken; ``base[i]`` and ``head[i]`` side by side.

    Slower or faster when the interval leaves 1 on one side and the estimate is relevant, same when it lies within
    the relevant change, ambiguous when the pairs run out. Pairs with a sample that is not finite are left out.
    """
    n = min(len(base), len(head))
    b, h = np.asarray(base[:n], dtype=float), np.asarray(head[:n], dtype=float)
    finite = np.isfinite(b) & np.isfinite(h)
    b, h = b[finite], h[finite]
    log = bool((b > 0).all() and (h > 0).all())
    unit = 1.0 if log else float(np.median(np.abs(b))) or 1.0
    d = np.log(h) - np.log(b) if log else (h - b) / unit
    if not len(d):
        return Decision(_out_of_pairs(0, options), np.nan, -np.inf, np.inf, 1.0, 0)
    middle = _centre(d)
    alpha = options.alpha / options.family
    low, high = interval(d, alpha, options)
    p = min(1.0, 2 / max(peak(d, 0.0, +1, options), peak(d, 0.0, -1, options)))
    ratio, lower, upper = (float(np.exp(v)) if log else 1.0 + v for v in (middle, low, high))
    verdict: VerdictKind | None = None
    edge = np.log1p(options.relevant)
    if (low > 0 or high < 0) and abs(middle) >= edge:
        worse = (middle > 0) == (better == "lower")
        verdict = VerdictKind.SLOWER if worse else VerdictKind.FASTER
    elif low >= -edge and high <= edge:
        verdict = VerdictKind.SAME
    else:
        verdict = _out_of_pairs(len(d), options)
    return Decision(verdict, ratio, lower, upper, p, len(d), "log" if log else "linear")


def _out_of_pairs(pairs: int, options: SequentialOptions) -> VerdictKind | None:
    return VerdictKind.AMBIGUOUS if pairs >= options.futile else None


def _centre(d: Array) -> float:
    """Median of all averages of two differences."""
    i, j = np.triu_indices(min(len(d), 400))
    return float(np.median((d[i] + d[j]) / 2))


def interval(d: Array, alpha: float, options: SequentialOptions = SequentialOptions()) -> tuple[float, float]:
    """Centres of the differences ``d`` [pairs] that no look so far has rejected: confidence sequence at 1 - alpha."""
    # Rejection of one side is monotone in the centre up to rounding, so each end is found by halving.
    spread = float(np.ptp(d))
    reach = spread + max(abs(float(d.min())), abs(float(d.max()))) + 1e-12
    ends = []
    for side in (+1, -1):
        inside, outside = _centre(d), _centre(d) - side * 2 * reach
        if peak(d, outside, side, options) < 2 / alpha:
            ends.append(-side * np.inf)
            continue
        for _ in range(40):
            middle = (inside + outside) / 2
            if peak(d, middle, side, options) < 2 / alpha:
                inside = middle
            else:
                outside = middle
        ends.append(outside)
    return float(ends[0]), float(ends[1])


def peak(d: Array, centre: float, side: int, options: SequentialOptions = SequentialOptions()) -> float:
    """Largest wealth so far of the bet that ``d`` lies above (``side`` 1) or below (-1) ``centre``."""
    x = side * (d - centre)
    return float(np.exp(max(0.0, float(_wealth(x, options).max(initial=0.0)))))


def _wealth(x: Array, options: SequentialOptions) -> Array:
    """Log wealth after each pair: the mean of a bet on signs and of bets on signed ranks."""
    n = np.arange(1, len(x) + 1)
    up = np.cumsum(x > 0)
    tie = np.cumsum(x == 0)
    wins, losses = up + 0.5 * tie, n - up - 0.5 * tie
    # A uniform mixture over the share of wins above one half, in closed form; half the mass below it is given away.
    signs = special.betaln(wins + 1, losses + 1) + n * np.log(2.0) + _log_upper(wins + 1, losses + 1)
    # The rank of each new difference among those before it, by size: given the sizes, its sign is a fair coin.
    size = np.abs(x)
    rank = np.tril(size[None, :] <= size[:, None]).sum(axis=1) / n
    stake = np.array(options.bets)[:, None] * rank * np.sign(x)
    ranks = np.cumsum(np.log1p(stake), axis=1)
    mixed = np.logaddexp.reduce(ranks, axis=0) - np.log(len(options.bets))
    return np.asarray(np.logaddexp(signs, mixed) - np.log(2.0))


def _log_upper(a: Array, b: Array) -> Array:
    """Log of twice the mass of Beta(a, b) above one half."""
    return np.asarray(np.log(2.0) + np.log(np.maximum(special.betainc(b, a, 0.5), 1e-300)))
