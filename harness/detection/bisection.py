"""Bisection under noise: which of n steps brought a change, from measurements that may each be wrong.

Step i (1..n) is the first bad one; position 0 is known good and position n known bad. A measurement at a position gives
a log ratio to the good end and its standard error. Each updates the probability of every step by Bayes' rule with a
heavy-tailed likelihood, so that one spike cannot decide, and the next position is where the evidence splits best. Noise
costs a few repeats near the boundary instead of a wrong answer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

_T_DOF = 4.0


@dataclass(frozen=True, slots=True)
class BisectionOptions:
    """Stops at ``confidence`` in one step, or after ``max_measurements``."""

    confidence: float = 0.999
    max_measurements: int = 64
    least_error: float = 1e-4


@dataclass
class Bisection:
    """The state of one search; feed it with :meth:`observe` until :meth:`next_position` gives None.

    ``steps`` is n; ``effect`` the log ratio at the bad end. ``skipped`` positions could not be measured (they do not
    build): steps that only they could tell apart stay together in :meth:`candidates`.
    """

    steps: int
    effect: float
    options: BisectionOptions = field(default_factory=BisectionOptions)
    skipped: set[int] = field(default_factory=set)
    observed: list[tuple[int, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError("a bisection needs at least one step")
        if self.effect == 0 or not np.isfinite(self.effect):
            raise ValueError("a bisection needs an effect at its bad end")

    def observe(self, position: int, log_ratio: float, error: float) -> None:
        """One measurement at ``position`` (1..n-1): log ratio to the good end, standard error of it."""
        if not 0 < position < self.steps:
            raise ValueError(f"position {position} is not between the ends 0 and {self.steps}")
        self.observed.append((position, log_ratio, max(error, self.options.least_error)))

    def skip(self, position: int) -> None:
        """``position`` cannot be measured."""
        self.skipped.add(position)

    def posterior(self) -> npt.NDArray[np.float64]:
        """Probability of each step to be the first bad one; index 0 is step 1."""
        logs = np.zeros(self.steps)
        first_bad = np.arange(1, self.steps + 1)
        for position, ratio, error in self.observed:
            expected = np.where(first_bad <= position, self.effect, 0.0)
            logs += -(_T_DOF + 1) / 2 * np.log1p(((ratio - expected) / error) ** 2 / _T_DOF)
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum())

    def next_position(self) -> int | None:
        """Where to measure next; None when the answer is sure enough, or nothing measurable would help."""
        if len(self.observed) >= self.options.max_measurements:
            return None
        mass = self.posterior()
        if self._group(mass).sum() >= self.options.confidence:
            return None
        # Measuring position p asks whether the first bad step is at or before p.
        before = np.cumsum(mass)[:-1]
        usable = [p for p in range(1, self.steps) if p not in self.skipped]
        if not usable:
            return None
        best = min(usable, key=lambda p: (abs(before[p - 1] - 0.5), p))
        # Where all mass lies on one side of every measurable position, no measurement can move it.
        return best if 1e-9 < before[best - 1] < 1 - 1e-9 else None

    def candidates(self) -> list[int]:
        """Steps that cannot be told apart from the likeliest one, which is among them; one step when all is clear."""
        mass = self.posterior()
        chosen = self._same(int(np.argmax(mass)))
        if mass[chosen].sum() >= self.options.confidence:
            return [i + 1 for i in chosen]
        order = np.argsort(-mass)
        needed = int(np.searchsorted(np.cumsum(mass[order]), self.options.confidence)) + 1
        return sorted({i + 1 for j in order[:needed] for i in self._same(int(j))})

    def _same(self, step: int) -> list[int]:
        """Indices that only skipped positions separate from ``step`` (index of a step, 0-based)."""
        low = step
        while low > 0 and low in self.skipped:
            low -= 1
        high = step
        while high + 1 < self.steps and high + 1 in self.skipped:
            high += 1
        return list(range(low, high + 1))

    def _group(self, mass: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return mass[self._same(int(np.argmax(mass)))]


def noise_free_measurements(steps: int) -> int:
    """Measurements that bisection needs when none is wrong."""
    return int(np.ceil(np.log2(steps))) if steps > 1 else 0


def simulate(
    steps: int, first_bad: int, effect: float, noise: float, seed: int, skipped: Collection[int] = ()
) -> tuple[list[int], int]:
    """Candidates and number of measurements of one simulated search with Gaussian noise of the log ratio."""
    rng = np.random.default_rng(seed)
    search = Bisection(steps, effect, skipped=set(skipped))
    while (position := search.next_position()) is not None:
        truth = effect if position >= first_bad else 0.0
        search.observe(position, truth + noise * rng.normal(), noise)
    return search.candidates(), len(search.observed)
