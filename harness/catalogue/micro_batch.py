"""Slicing a batch by cache misses: the reported rule, and a controller that comes to rest.

The reported rule halves the slice after three samples above 0.087 and doubles it after three below 0.035. It has no
memory: where one size is below and twice that size above, it moves for ever; and where small slices miss *more*, since
weights are read again for each, it halves down to 1.

The controller takes back what did not help. Above the high mark it looks at smaller sizes, then at larger ones, as far
as they go, until one saves a fifth of the misses, and returns where none does; so it rests at a size below the high
mark, or at one that no other betters by a fifth. What it tried it tries again only when the miss rate has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

HIGH, LOW, SAMPLES, LEAST, MOST = 0.087, 0.035, 3, 1, 128
#: A miss rate this many times what it was where a move was taken back, or that part of it, is another regime.
_ANOTHER_REGIME = 2.0
#: A move for fewer misses must save this share of them: more than samples scatter.
_BETTER = 0.8

#: Halving and doubling for fewer misses; doubling because there are few.
Direction = Literal["down", "up", "grow"]


@dataclass
class Reported:
    """The rule as reported, within bounds."""

    size: int = 64
    _run: list[float] = field(default_factory=list)

    def sample(self, miss_rate: float) -> int:
        """Take a sample at the present size; the size for the next slice."""
        self._run.append(miss_rate)
        last = self._run[-SAMPLES:]
        if len(last) == SAMPLES and min(last) > HIGH:
            self.size, self._run = max(LEAST, self.size // 2), []
        elif len(last) == SAMPLES and max(last) < LOW:
            self.size, self._run = min(MOST, self.size * 2), []
        return self.size


@dataclass
class Controller:
    """Slice size between ``least`` and ``most``, a power of two times ``least``.

    ``high`` and ``low``: three samples in a row above or below make it halve or double. ``moves`` counts changes.
    """

    size: int = 64
    high: float = HIGH
    low: float = LOW
    least: int = LEAST
    most: int = MOST
    moves: int = 0
    _run: list[float] = field(default_factory=list)
    _came: tuple[Direction, int, float, float] | None = None
    _closed: dict[tuple[int, Direction], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (0 <= self.low < self.high <= 1 and 1 <= self.least <= self.size <= self.most):
            raise ValueError("needs 0 <= low < high <= 1 and 1 <= least <= size <= most")

    def sample(self, miss_rate: float) -> int:
        """Take a sample at the present size; the size for the next slice. ``ValueError`` for what is no share."""
        if not 0 <= miss_rate <= 1:
            raise ValueError(f"miss rate {miss_rate!r} is no share")
        self._run = [*self._run, miss_rate][-SAMPLES:]
        if len(self._run) < SAMPLES:
            return self.size
        mean = sum(self._run) / SAMPLES
        if self._came is not None and not self._arrived(self._came, mean):
            return self.size
        self._came = None
        self._forget(mean)
        if min(self._run) > self.high:
            _ = self._try("down", mean, mean * _BETTER) or self._try("up", mean, mean * _BETTER)
        elif max(self._run) < self.low:
            self._try("grow", mean, self.high)
        return self.size

    def _arrived(self, came: tuple[Direction, int, float, float], mean: float) -> bool:
        """Whether the last move helped. Else the search goes on, or back to where it began."""
        direction, origin, before, wanted = came
        if mean <= wanted:
            if direction == "down":
                # It was larger and missed more: what is few now is no reason to go back.
                self._closed[self.size, "grow"] = mean
            return True
        further = self._next(direction)
        if direction != "grow" and further != self.size:
            self._go(further)
        else:
            self._came = None
            self._closed[origin, direction] = before
            self._go(origin)
        return False

    def _try(self, direction: Direction, mean: float, wanted: float) -> bool:
        to = self._next(direction)
        if to == self.size or (self.size, direction) in self._closed:
            return False
        self._came = (direction, self.size, mean, wanted)
        self._go(to)
        return True

    def _next(self, direction: Direction) -> int:
        return max(self.least, self.size // 2) if direction == "down" else min(self.most, self.size * 2)

    def _go(self, to: int) -> None:
        self.size, self._run = to, []
        self.moves += 1

    def _forget(self, mean: float) -> None:
        """Open what was closed at this size under another miss rate."""
        for then in [miss for (size, _), miss in self._closed.items() if size == self.size]:
            if not then / _ANOTHER_REGIME <= mean <= then * _ANOTHER_REGIME:
                self._closed.clear()
                return


def drive(controller: Reported | Controller, miss_rate: Callable[[int], float], slices: int) -> list[int]:
    """Sizes of so many slices, the first being where the controller stood."""
    sizes = []
    for _ in range(slices):
        sizes.append(controller.size)
        controller.sample(miss_rate(controller.size))
    return sizes


def at_rest(sizes: list[int], last: int = 4 * SAMPLES) -> bool:
    """Whether the last slices were all of one size."""
    return len(set(sizes[-last:])) == 1


def sizes_between(least: int = LEAST, most: int = MOST) -> list[int]:
    """Sizes that halving and doubling reach: ``least``, its doubles, up to ``most``."""
    found = [least]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found
