"""Requests that come to a server, the batches they meet in, and the ranks of a quantile's interval. Only numpy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Traffic:
    """``rate``: requests a second of simulated time. ``lengths`` are drawn alike; a share ``heavy`` of requests is
    ``heavy_length`` tokens long instead. Each request asks for ``new_tokens``."""

    requests: int
    rate: float
    seed: int
    lengths: tuple[int, ...] = (64, 128, 256)
    new_tokens: int = 16
    heavy: float = 0.05
    heavy_length: int = 900


def drawn(traffic: Traffic) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """When each request arrives, and how long its prompt is."""
    rng = np.random.default_rng(traffic.seed)
    arrivals = np.cumsum(rng.exponential(1.0 / traffic.rate, traffic.requests))
    lengths = rng.choice(np.asarray(traffic.lengths), traffic.requests)
    return arrivals, np.where(rng.random(traffic.requests) < traffic.heavy, traffic.heavy_length, lengths)


@dataclass(frozen=True)
class Schedule:
    """What a server does step by step: ``steps`` holds the valid keys of each slot, 0 where it is empty; ``waits`` per
    request the first step that it waits for and the one that gives its first token."""

    steps: list[list[int]]
    waits: list[tuple[int, int]]


def schedule(traffic: Traffic, max_batch: int) -> Schedule:
    """Dynamic batches where a step takes one unit of time, so that the same requests meet on every machine.

    A request takes the first free slot and keeps it until it is done; a request with no slot free waits its turn.
    """
    arrivals, lengths = drawn(traffic)
    slots: list[tuple[int, int]] = [(0, 0)] * max_batch  # valid keys, tokens left
    found, now, following = Schedule([], []), 0, 0
    while following < traffic.requests or any(left for _, left in slots):
        for i, (_, left) in enumerate(slots):
            if not left and following < traffic.requests and arrivals[following] <= now:
                waited = now - math.ceil(arrivals[following])
                found.waits.append((len(found.steps) - waited, len(found.steps)))
                slots[i] = int(lengths[following]), traffic.new_tokens
                following += 1
        if any(left for _, left in slots):
            found.steps.append([valid if left else 0 for valid, left in slots])
            slots = [(valid + 1, left - 1) if left > 1 else (0, 0) for valid, left in slots]
            now += 1
        else:
            now = math.ceil(arrivals[following])
    return found


@cache
def quantile_ranks(n: int, q: float) -> tuple[int, int]:
    """Ranks (from 1) of the ordered values that hold the ``q`` quantile of ``n`` with 95 %, whatever the distribution.

    The first is 0 and the second above ``n`` where there are too few values for that end.
    """
    logs = math.log(q), math.log1p(-q)
    low = high = -1
    total = 0.0
    for k in range(n + 1):
        chosen = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        total += math.exp(chosen + k * logs[0] + (n - k) * logs[1])
        if low < 0 and total >= 0.025:
            low = k
        if total >= 0.975:
            high = k
            break
    return low, (high if high >= 0 else n) + 1
