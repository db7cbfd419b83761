"""Where a request's blocks lie: anywhere, or side by side. What finds no place makes the pool move all it holds."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: Blocks for a request, given which are taken (a byte each, 1 for taken); None where it finds no place.
Place = Callable[[bytearray, int], list[int] | None]


def paged(values: Tensor, *, events: Tensor, capacity: int, note: Any) -> Tensor:
    """What each request reads back from its blocks as it leaves: (requests, width), 0 for those that were refused.

    Args:
        values: (requests, width); what a request writes into each of its blocks.
        events: (n, 2) int32 on the host; (request, blocks) as it arrives, (request, 0) as it leaves.
        capacity: blocks of the pool. A request for more than are free is refused, wherever they lie.
        note: called with "no_place" for each request that made the pool move, and where anybody listens with "scatter"
            and "largest" after each arrival.
    """
    return run(values, events, capacity, note, any_free)


def first_fit(values: Tensor, *, events: Tensor, capacity: int, note: Any) -> Tensor:
    """The same with blocks side by side in the first run that holds them."""
    return run(values, events, capacity, note, first_run)


def best_fit(values: Tensor, *, events: Tensor, capacity: int, note: Any) -> Tensor:
    """The same with blocks side by side in the shortest run that holds them."""
    return run(values, events, capacity, note, shortest_run)


def any_free(taken: bytearray, blocks: int) -> list[int]:
    """The first free blocks; there are enough."""
    found = [taken.find(0)]
    while len(found) < blocks:
        found.append(taken.find(0, found[-1] + 1))
    return found


def first_run(taken: bytearray, blocks: int) -> list[int] | None:
    """The first run of free blocks that is long enough."""
    at = taken.find(bytes(blocks))
    return None if at < 0 else list(range(at, at + blocks))


def shortest_run(taken: bytearray, blocks: int) -> list[int] | None:
    """The shortest run of free blocks that is long enough."""
    found = min(((e - s, s) for s, e in free_runs(taken) if e - s >= blocks), default=None)
    return None if found is None else list(range(found[1], found[1] + blocks))


def free_runs(taken: bytearray) -> list[tuple[int, int]]:
    """Start and stop of each run of free blocks."""
    return [m.span() for m in re.finditer(rb"\0+", taken)]


def run(values: Tensor, events: Tensor, capacity: int, note: Any, place: Place) -> Tensor:
    """:func:`paged` with any way of placing."""
    pool = torch.zeros((capacity, values.shape[1]), dtype=values.dtype, device=values.device)
    out = torch.zeros_like(values)
    taken = bytearray(capacity)
    held: dict[int, list[int]] = {}
    free = capacity
    for request, blocks in events.tolist():
        if not blocks:
            if (given := held.pop(request, None)) is not None:
                out[request] = pool[given].mean(0)
                for i in given:
                    taken[i] = 0
                free += len(given)
            continue
        if blocks <= free:
            given = place(taken, blocks)
            if given is None:
                note("no_place")
                _compact(pool, taken, held)
                given = place(taken, blocks)
                assert given is not None
            pool[given] = values[request]
            for i in given:
                taken[i] = 1
            held[request], free = given, free - blocks
        if note.listening:
            sizes = [e - s for s, e in free_runs(taken)] or [0]
            note("scatter", statistics.pstdev(sizes) / (statistics.fmean(sizes) or 1.0))
            note("largest", max(sizes) / capacity)
    return out


def _compact(pool: Tensor, taken: bytearray, held: dict[int, list[int]]) -> None:
    """Move all that is held to the front, in its order."""
    order = sorted(held, key=lambda r: held[r][0])
    moved = [i for r in order for i in held[r]]
    pool[: len(moved)] = pool[moved]
    at = 0
    for r in order:
        held[r] = list(range(at, at + len(held[r])))
        at += len(held[r])
    taken[:] = bytes([1]) * at + bytes(len(taken) - at)
