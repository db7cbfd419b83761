"""Things of unequal weight in a fixed number of parts: tokens over ranks, cases over devices.

What is handed out never depends on the order of equal weights' names or on the machine. Standard library only, as all
that measures on bare images.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

#: Rounds of moving and swapping between the heaviest part and the others.
_ROUNDS = 100
#: Things of the heaviest part times things of another beyond which no swap is looked for.
_PAIRS = 10_000


def balanced(weights: Sequence[float], parts: int) -> list[list[int]]:
    """Indices of ``weights`` in exactly ``parts`` lists, each in rising order; empty ones only where things are fewer.

    Promised of the heaviest part: at most the mean and one thing more, at most 4/3 - 1/(3 parts) of the best possible
    (what comes longest first already keeps), and never more than dealing them out in turn. Where all weigh nothing,
    counts are balanced. ``ValueError`` for a weight that is negative or not finite, or fewer than one part.
    """
    if parts < 1:
        raise ValueError(f"{parts} parts; give at least 1")
    if wrong := [w for w in weights if not 0 <= w < float("inf")]:
        raise ValueError(f"weight {wrong[0]!r} is negative or not finite")
    tried = [_mended(weights, longest_first(weights, parts)), in_turn(len(weights), parts)]
    best = min(tried, key=lambda found: heaviest(weights, found))
    return [sorted(part) for part in best]


def longest_first(weights: Sequence[float], parts: int) -> list[list[int]]:
    """The heaviest next, to the part that has least so far; an empty part comes before all others."""
    found: list[list[int]] = [[] for _ in range(parts)]
    load = [(False, 0.0, k) for k in range(parts)]
    for i in sorted(range(len(weights)), key=lambda i: (-weights[i], i)):
        _, held, k = load[0]
        found[k].append(i)
        heapq.heapreplace(load, (True, held + weights[i], k))
    return found


def in_turn(count: int, parts: int) -> list[list[int]]:
    """Dealt out in turn, whatever they weigh."""
    return [list(range(k, count, parts)) for k in range(parts)]


def heaviest(weights: Sequence[float], found: Sequence[Sequence[int]]) -> float:
    """Weight of the heaviest part."""
    return max((sum(weights[i] for i in part) for part in found), default=0.0)


def deviation(weights: Sequence[float], found: Sequence[Sequence[int]]) -> float:
    """How far the worst part is from the mean, as a share of the mean; 0 where all weigh nothing."""
    loads = [sum(weights[i] for i in part) for part in found]
    mean = sum(loads) / len(loads)
    return max(abs(load - mean) for load in loads) / mean if mean > 0 else 0.0


def _mended(weights: Sequence[float], found: list[list[int]]) -> list[list[int]]:
    """Moves or swaps things out of the heaviest part for as long as its weight falls by it. No part gets empty."""
    loads = [sum(weights[i] for i in part) for part in found]
    for _ in range(_ROUNDS):
        top = max(range(len(found)), key=loads.__getitem__)
        for to in sorted((k for k in range(len(found)) if k != top), key=loads.__getitem__):
            step = _step(weights, found[top], found[to], loads[top] - loads[to])
            if step is not None:
                break
        else:
            return found
        given, taken = step
        found[top].remove(given)
        found[to].append(given)
        if taken is not None:
            found[to].remove(taken)
            found[top].append(taken)
        for k in (top, to):
            loads[k] = sum(weights[i] for i in found[k])
    return found


def _step(weights: Sequence[float], heavy: list[int], light: list[int], gap: float) -> tuple[int, int | None] | None:
    """What to give of ``heavy`` and take of ``light`` so that both end nearest to each other; None where nothing helps.

    What moves must weigh more than nothing and less than ``gap``, or the heavier of the two would not get lighter.
    """
    if len(heavy) * len(light) > _PAIRS:
        return None
    best, nearest = None, float("inf")
    for i in heavy:
        for j in (None, *light):
            moved = weights[i] - (weights[j] if j is not None else 0.0)
            helps = gap * 1e-9 < moved < gap * (1 - 1e-9) and (j is not None or len(heavy) > 1)
            if helps and abs(gap / 2 - moved) < nearest:
                best, nearest = (i, j), abs(gap / 2 - moved)
    return best
