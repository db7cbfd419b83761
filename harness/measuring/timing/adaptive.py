"""When to stop sampling: distribution-free interval of the median, and the rule on its width.

The interval is that of order statistics: with n samples, the k-th smallest and k-th largest hold the median
with probability 1 - 2 P(Binomial(n, 1/2) < k), whatever the distribution. Stopping at the first narrow
interval selects intervals that are narrow by luck, so the rule looks only when n has grown by a tenth, and
ranks are chosen for 96.8 % where 95 % is to be had in the end. Both were chosen by simulation
(``scripts/bench_adaptive.py``): the reported interval then holds the median in 95 % of runs or more, at 1.0 to
1.35 times the samples that the noise demands.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field
from functools import cache

#: Confidence that ranks are chosen for, so that 95 % is left after stopping early. The strictest that six
#: samples can give (1 - 2 / 64).
CONFIDENCE = 0.968

#: Growth of n between two looks at the width.
_GROWTH = 1.1


@cache
def interval_rank(n: int, confidence: float = CONFIDENCE) -> int:
    """Largest k such that the k-th smallest and largest of n hold the median with ``confidence``; 0 if none.

    Exact up to a few thousand samples, beyond that from the normal approximation.
    """
    if n > 4000:
        quantile = math.sqrt(2.0) * _inverse_erf(confidence)
        return math.floor((n - quantile * math.sqrt(n)) / 2.0)
    tail, term = 0, 1
    allowed = (round((1.0 - confidence) * 1e6) << n) // 2_000_000  # of 2**n equally likely outcomes, per side
    for k in range(n // 2 + 1):
        tail += term
        if tail > allowed:
            return k
        term = term * (n - k) // (k + 1)
    return n // 2


def _inverse_erf(p: float) -> float:
    low, high = 0.0, 6.0
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (middle, high) if math.erf(middle) < p else (low, middle)
    return low


def median_of(ordered: list[float]) -> float:
    """Median of sorted values; the mean of the middle two for an even number."""
    n = len(ordered)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2.0


def median_interval(ordered: list[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Interval of the median of sorted values; None with fewer than 6 of them."""
    k = interval_rank(len(ordered), confidence)
    return (ordered[k - 1], ordered[-k]) if k > 0 else None


@dataclass(frozen=True, slots=True)
class StopRule:
    """Limits of sampling one metric.

    Stops when the half-width of the median's interval is at most ``rel_width`` of the median ("interval"), at
    ``max_samples`` ("count"), or when ``max_seconds`` have gone by ("time"). The time counts flushes, since
    people wait for them. Before ``min_samples`` only ``hard_seconds`` stops, which is "time" too: a median
    without an interval is of little use, an endless case of less.
    """

    rel_width: float
    min_samples: int = 6
    max_samples: int = 400
    max_seconds: float = 1.0
    hard_seconds: float = 15.0


@dataclass(slots=True)
class Sampling:
    """Samples so far, in order as taken and sorted, and whether they suffice."""

    rule: StopRule
    samples: list[float] = field(default_factory=list)
    ordered: list[float] = field(default_factory=list)
    _next_look: int = 0

    def add(self, seconds: float) -> None:
        """Takes one sample."""
        self.samples.append(seconds)
        bisect.insort(self.ordered, seconds)

    def stop(self, elapsed: float) -> str | None:
        """``interval``, ``count`` or ``time`` when sampling is to end, else None. ``elapsed`` in seconds."""
        n, rule = len(self.samples), self.rule
        if n >= rule.min_samples and n >= self._next_look:
            self._next_look = max(n + 1, math.ceil(n * _GROWTH))
            if self._narrow():
                return "interval"
        if n >= rule.max_samples:
            return "count"
        limit = rule.max_seconds if n >= rule.min_samples else rule.hard_seconds
        return "time" if n and elapsed >= limit else None

    def _narrow(self) -> bool:
        interval = median_interval(self.ordered)
        if interval is None:
            return False
        return (interval[1] - interval[0]) / 2.0 <= self.rule.rel_width * median_of(self.ordered)
