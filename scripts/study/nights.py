"""Simulated nights of a suite, judged night by night as a user of ``detect --pool`` would see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[np.float64]

KINDS = ("gaussian", "t3", "bimodal", "ar(1) 0.6")
#: Detections of one series within so many nights of each other are one alarm.
NEAR = 10
#: Change points of each series, from the log values of a suite [series, nights].
Detector = Callable[[Array], list[list[int]]]


def noise(kind: str, series: int, nights: int, rng: np.random.Generator, sd: float = 0.01) -> Array:
    """Noise of standard deviation ``sd`` on the log scale: [series, nights]."""
    shape = (series, nights)
    if kind == "gaussian":
        e = rng.normal(size=shape)
    elif kind == "t3":
        e = rng.standard_t(3, shape) / np.sqrt(3)
    elif kind == "bimodal":
        upper = rng.random(shape) < 0.3
        e = (2.0 * upper - 0.6 + 0.35 * rng.normal(size=shape)) / np.sqrt(4 * 0.21 + 0.35**2)
    elif kind == "ar(1) 0.6":
        e = rng.normal(size=shape)
        for t in range(1, nights):
            e[:, t] = 0.6 * e[:, t - 1] + 0.8 * e[:, t]
    else:
        raise ValueError(kind)
    return sd * e


def suite(kind: str, series: int, nights: int, rng: np.random.Generator, sd: float = 0.01) -> Array:
    """Log values of a suite whose series have levels of their own: [series, nights]."""
    return rng.normal(size=(series, 1)) * 1.5 - 7 + noise(kind, series, nights, rng, sd)


@dataclass(frozen=True)
class Count:
    """``hits`` of ``total``, with exact 95 % bounds."""

    hits: int
    total: int

    @property
    def rate(self) -> float:
        return self.hits / max(self.total, 1)

    @property
    def low(self) -> float:
        """Lower bound of the share, one-sided 95 %."""
        return float(stats.beta.ppf(0.05, self.hits, self.total - self.hits + 1)) if self.hits else 0.0

    @property
    def high(self) -> float:
        """Upper bound of the share, one-sided 95 %."""
        left = self.total - self.hits
        return float(stats.beta.ppf(0.95, self.hits + 1, left)) if left else 1.0

    @property
    def per_1000_high(self) -> float:
        """Upper 95 % bound of the events per 1000, for rare events."""
        return float(1000 * stats.chi2.ppf(0.95, 2 * (self.hits + 1)) / 2 / max(self.total, 1))

    def __add__(self, other: Count) -> Count:
        return Count(self.hits + other.hits, self.total + other.total)


def alarms(detector: Detector, x: Array, first: int = 4) -> Iterator[tuple[int, int, int]]:
    """(night, series, index) of each new detection when the suite ``x`` is judged after every night."""
    seen: dict[int, list[int]] = {}
    for night in range(first, x.shape[1] + 1):
        for i, found in enumerate(detector(x[:, :night])):
            for index in found:
                known = seen.setdefault(i, [])
                if all(abs(index - k) > NEAR for k in known):
                    yield night, i, index
                known.append(index)


def false_alarms(detector: Detector, kind: str, series: int, nights: int, seed: int) -> Count:
    """Detections per series and night where nothing changes."""
    x = suite(kind, series, nights, np.random.default_rng(seed))
    return Count(sum(1 for _ in alarms(detector, x)), series * nights)


@dataclass(frozen=True)
class Planted:
    """What became of planted changes: found at all, found at the right place, and detections elsewhere."""

    found: Count
    placed: Count
    elsewhere: Count


def planted(
    detector: Detector, kind: str, *, affected: int, series: int, history: int, nights: int, seed: int,
    change: Callable[[int], Array], near: int, looks: Sequence[int] = (),
) -> Planted:  # fmt: skip
    """Judge ``nights`` after ``affected`` series began to change by ``change(nights)`` (log scale).

    ``looks``: earlier nights, counted from the change, on which it is judged as well; what any of them finds counts.
    """
    x = suite(kind, series, history + nights, np.random.default_rng(seed))
    x[:affected, history:] += change(nights)
    ours = [10**9] * affected
    for look in (*looks, nights):
        found = detector(x[:, : history + look])
        ours = [min([o, *(abs(i - history) for i in f)]) for o, f in zip(ours, found[:affected], strict=True)]
    hits = sum(d <= near for d in ours)
    elsewhere = sum(len(f) for f in found[affected:])
    return Planted(Count(hits, affected), Count(sum(d <= 1 for d in ours), hits), Count(elsewhere, series))
