"""A cache of blocks that requests of different lengths come to and leave: contiguous (first fit, best fit) or paged.

The two indices of the incident, over time: scatter = std / mean of the free runs' sizes, and the largest free run over
the capacity. Sizes are in blocks.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Policy = Literal["first_fit", "best_fit", "paged"]

#: What the incident report calls fragmented.
SCATTER, LARGEST = 1.8, 0.12


@dataclass(frozen=True)
class Request:
    """Arrives, holds ``blocks`` for ``stays`` and leaves; times in steps."""

    arrives: float
    stays: float
    blocks: int


def trace(
    n: int, *, seed: int, lengths: Sequence[int] = (64, 128, 256, 1024), page: int = 16, load: float = 1.0,
    mean_stay: float = 100.0,
) -> list[Request]:  # fmt: skip
    """Poisson arrivals, ``load`` a step, stays exponential, lengths in tokens drawn alike."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1.0 / load, n))
    stays, chosen = rng.exponential(mean_stay, n), rng.choice(np.asarray(lengths), n)
    return [Request(float(a), float(s), -(-int(c) // page)) for a, s, c in zip(arrivals, stays, chosen, strict=True)]


class Allocator:
    """``capacity`` blocks; ``taken`` says which are held. Runs are [start, stop)."""

    def __init__(self, capacity: int, policy: Policy) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity} and must be at least 1")
        if policy not in ("first_fit", "best_fit", "paged"):
            raise ValueError(f"policy {policy!r} is none of first_fit, best_fit, paged")
        self.taken: NDArray[np.bool_] = np.zeros(capacity, dtype=np.bool_)
        self._policy = policy
        self.free_blocks = capacity

    def free_runs(self) -> NDArray[np.int64]:
        """(runs, 2): start and stop of each maximal free run, in order."""
        edges = np.diff(np.concatenate(([True], self.taken, [True])).astype(np.int8))
        return np.stack((np.flatnonzero(edges == -1), np.flatnonzero(edges == 1)), 1)

    def allocate(self, blocks: int) -> NDArray[np.int64] | None:
        """The blocks given, or None where this policy finds no place."""
        if blocks < 1:
            raise ValueError(f"{blocks} blocks were asked for; at least 1")
        if blocks > self.free_blocks:
            return None
        if self._policy == "paged":
            given = np.flatnonzero(~self.taken)[:blocks]
        else:
            runs = self.free_runs()
            sizes = runs[:, 1] - runs[:, 0]
            fits = np.flatnonzero(sizes >= blocks)
            if not fits.size:
                return None
            run = fits[0] if self._policy == "first_fit" else fits[np.argmin(sizes[fits])]
            given = np.arange(runs[run, 0], runs[run, 0] + blocks)
        self.taken[given] = True
        self.free_blocks -= blocks
        return given

    def release(self, blocks: NDArray[np.int64]) -> None:
        """Give blocks back. ``ValueError`` where one is free already."""
        if not self.taken[blocks].all():
            raise ValueError("a block is given back that is free already")
        self.taken[blocks] = False
        self.free_blocks += len(blocks)

    def indices(self) -> tuple[float, float]:
        """(scatter, largest free run / capacity). Without free blocks (0, 0)."""
        runs = self.free_runs()
        sizes = (runs[:, 1] - runs[:, 0]).astype(float)
        if not sizes.size:
            return 0.0, 0.0
        return float(sizes.std() / sizes.mean()), float(sizes.max() / self.taken.size)


@dataclass
class History:
    """What a trace did: per arrival the time, both indices and the share of blocks held after it; requests ``refused``,
    and those of them for which there were blocks enough (``fragmented``). ``taken``: the address space at the end.
    ``frames``: (time, share of blocks held per cell of the address space), where asked for."""

    time: list[float] = field(default_factory=list)
    scatter: list[float] = field(default_factory=list)
    largest: list[float] = field(default_factory=list)
    held: list[float] = field(default_factory=list)
    refused: int = 0
    fragmented: int = 0
    taken: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    frames: list[tuple[float, NDArray[np.float64]]] = field(default_factory=list)

    def flagged(self) -> float:
        """Share of arrivals at which the incident's rule says fragmented."""
        over = [s > SCATTER or x < LARGEST for s, x in zip(self.scatter, self.largest, strict=True)]
        return sum(over) / len(over) if over else 0.0


def run(requests: Sequence[Request], capacity: int, policy: Policy, *, frames: int = 0, cells: int = 128) -> History:
    """Drive an allocator with a trace. A refused request goes away. ``frames`` pictures of ``cells`` cells are kept."""
    wanted = set(np.linspace(0, len(requests) - 1, frames).astype(int).tolist()) if frames else set()
    cache, history = Allocator(capacity, policy), History()
    leaving: list[tuple[float, int, NDArray[np.int64]]] = []
    for n, request in enumerate(sorted(requests, key=lambda r: r.arrives)):
        while leaving and leaving[0][0] <= request.arrives:
            cache.release(heapq.heappop(leaving)[2])
        enough = request.blocks <= cache.free_blocks
        given = cache.allocate(request.blocks)
        if given is None:
            history.refused += 1
            history.fragmented += enough
        else:
            heapq.heappush(leaving, (request.arrives + request.stays, n, given))
        scatter, largest = cache.indices()
        history.time.append(request.arrives)
        history.scatter.append(scatter)
        history.largest.append(largest)
        history.held.append(1.0 - cache.free_blocks / capacity)
        if n in wanted:
            history.frames.append((request.arrives, shares(cache.taken, cells)))
    history.taken = cache.taken
    return history


def shares(taken: NDArray[np.bool_], cells: int) -> NDArray[np.float64]:
    """Share of blocks held in each of at most ``cells`` parts of the address space, alike in size."""
    cells = min(cells, taken.size)
    edges = np.linspace(0, taken.size, cells + 1).astype(np.int64)
    return np.asarray(np.add.reduceat(taken.astype(float), edges[:-1]) / np.diff(edges))


def heat_map(taken: NDArray[np.bool_], cells: int = 2048, width: int = 64) -> NDArray[np.float64]:
    """(rows, width) share of blocks held per cell, so that any address space fits one picture; NaN past its end."""
    if cells < 1 or width < 1:
        raise ValueError("cells and width must be at least 1")
    held = shares(taken, cells)
    cells = len(held)
    rows = -(-cells // width)
    padded = np.full(rows * width, np.nan)
    padded[:cells] = held
    return padded.reshape(rows, width)


def record(path: Path, *, blocks: int, requests: int, seed: int = 0, frames: int = 96, cells: int = 128) -> None:
    """Write the history of every policy to ``path``, for the dashboard: a model's, and labelled so.

    The load is that which would hold 95 % of the blocks.
    """
    lengths = (64, 128, 256, 1024)
    mean_blocks = sum(-(-n // 16) for n in lengths) / len(lengths)
    arrivals = trace(requests, seed=seed, load=0.95 * blocks / mean_blocks / 100.0)
    told = {"version": 1, "source": "model", "blocks": blocks, "requests": requests, "seed": seed, "policies": {}}
    policies: tuple[Policy, ...] = ("first_fit", "best_fit", "paged")
    for policy in policies:
        h = run(arrivals, blocks, policy, frames=frames, cells=cells)
        told["policies"][policy] = {  # type: ignore[index]
            "time": [round(t, 3) for t, _ in h.frames],
            "held": [[round(float(x), 3) for x in cells_] for _, cells_ in h.frames],
            "refused": h.refused, "fragmented": h.fragmented, "flagged": h.flagged(),
        }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told), encoding="utf-8")


def main() -> int:
    """``python -m harness.catalogue.fragmentation``: record a history for the dashboard."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--blocks", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=Path("reports/fragmentation.json"))
    given = parser.parse_args()
    if given.blocks < 64 or given.requests < 1:
        parser.error("--blocks must be at least 64 and --requests at least 1")
    record(given.out, blocks=given.blocks, requests=given.requests)
    print(f"wrote {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
