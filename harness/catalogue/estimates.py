"""Small estimates with intervals: a share, a mean over seeds, a power law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from .traffic import quantile_ranks

_Z = 1.959963984540054


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval and what it rests on."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def share(hits: int, n: int) -> Estimate:
    """``hits`` of ``n`` with Wilson's interval, which is honest at 0 and at n."""
    if not 0 <= hits <= n or n < 1:
        raise ValueError(f"{hits} of {n} is no share")
    p, z2 = hits / n, _Z * _Z
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    low, high = (0.0 if not hits else middle - half), (1.0 if hits == n else middle + half)
    return Estimate(p, low, high, n)


def mean(values: Sequence[float]) -> Estimate:
    """Mean with Student's interval; of one value, an interval that is the whole line."""
    x = np.asarray(values, dtype=float)
    if not x.size:
        raise ValueError("no values")
    if x.size == 1:
        return Estimate(float(x[0]), -math.inf, math.inf, 1)
    half = float(stats.t.ppf(0.975, x.size - 1) * x.std(ddof=1) / math.sqrt(x.size))
    return Estimate(float(x.mean()), float(x.mean()) - half, float(x.mean()) + half, int(x.size))


def exponent(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """b of y = a x^b by least squares on logarithms; points with y = 0 say nothing and are left out."""
    points = [(math.log(a), math.log(b)) for a, b in zip(x, y, strict=True) if a > 0 and b > 0]
    if len(points) < 3:
        raise ValueError(f"{len(points)} points above 0; an exponent needs 3")
    fit = stats.linregress(*zip(*points, strict=True))
    half = float(stats.t.ppf(0.975, len(points) - 2) * fit.stderr)
    return Estimate(float(fit.slope), float(fit.slope) - half, float(fit.slope) + half, len(points))


def quantile(values: Sequence[float], q: float) -> Estimate:
    """Empirical quantile with the interval of order statistics, which assumes nothing but independence.

    Where there are too few values for an end of the interval, that end is infinite: a P99 of 100 values has no upper
    end.
    """
    x = np.sort(np.asarray(values, dtype=float))
    n = int(x.size)
    if not n:
        raise ValueError("no values")
    low, high = quantile_ranks(n, q)
    return Estimate(
        float(np.quantile(x, q)),
        float(x[low - 1]) if low >= 1 else -math.inf,
        float(x[high - 1]) if high <= n else math.inf,
        n,
    )
