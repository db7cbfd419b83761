"""Bank conflicts of shared memory, and saw teeth in timings.

A bank serves one word at a time: lanes that ask for different words of one bank wait for each other; lanes that ask for
the same word do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

BANKS = 32
WORD_BYTES = 4

#: Most shared memory that one block may use, in bytes (compute capability 9.0).
SHARED_BYTES = 227 * 1024


def ways(words: Iterable[int], banks: int = BANKS) -> int:
    """How many turns an access takes: the most different words that fall into one bank. 1 is free of conflicts."""
    per_bank: dict[int, set[int]] = {}
    for word in words:
        per_bank.setdefault(word % banks, set()).add(word)
    return max((len(w) for w in per_bank.values()), default=0)


def strided_ways(stride: int, lanes: int = 32, banks: int = BANKS) -> int:
    """The same for lanes ``stride`` words apart, in closed form: ceil(lanes x gcd(stride, banks) / banks), 1 for 0."""
    if stride == 0:
        return min(lanes, 1)
    return -(-lanes * math.gcd(stride, banks) // banks)


@dataclass(frozen=True)
class Tile:
    """Prediction for a tile [rows][columns] of 4-byte words in shared memory, rows ``pad`` words longer."""

    row_ways: int
    column_ways: int
    bytes: int
    fits: bool


def tile(rows: int, columns: int, pad: int = 0, lanes: int = 32) -> Tile:
    """Turns of a warp that reads along a row and of one that reads down a column."""
    size = rows * (columns + pad) * WORD_BYTES
    return Tile(
        strided_ways(1, min(lanes, columns)), strided_ways(columns + pad, min(lanes, rows)), size, size <= SHARED_BYTES
    )


@dataclass(frozen=True)
class Tooth:
    """Where one more costs too much: t(n + 1) / t(n) over what the growth of the work explains."""

    n: int
    ratio: float
    expected: float


def saw_teeth(times: Mapping[int, float], *, power: float = 1.0, least: float = 1.25) -> list[Tooth]:
    """Steps n -> n + 1 whose time grows by ``least`` times more than ((n + 1) / n) ** power."""
    found = []
    for n in sorted(times):
        if n + 1 in times and times[n] > 0:
            ratio, expected = times[n + 1] / times[n], ((n + 1) / n) ** power
            if ratio > least * expected:
                found.append(Tooth(n, ratio, expected))
    return found


def around(centres: Sequence[int]) -> list[int]:
    """n - 1, n, n + 1 of each."""
    return sorted({c + d for c in centres for d in (-1, 0, 1)})
