"""Deterministic series: bytes, registers, launches. Every difference is real, so one unit is a change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .batch import Array, Batch, Bools, Ints


@dataclass(frozen=True, slots=True)
class ExactOptions:
    """``same``: share of neighbours that are equal in a deterministic series of at least ``least`` points."""

    same: float = 0.9
    least: int = 4


def looks_exact(batch: Batch, same: Array, options: ExactOptions = ExactOptions()) -> Bools:
    """Which series are deterministic, judged by their values alone. ``same`` [series] as from ``step_noise``."""
    few = batch.count < 10
    # Among few points a single change already makes a fair share of the steps.
    steps = np.rint((1 - same) * np.maximum(batch.count - 1, 0))
    return np.asarray((batch.count >= options.least) & np.where(few, steps <= 1, same >= options.same))


def exact_changes(y: Array) -> Ints:
    """First points of new levels in ``y`` [points] without gaps.

    A single point that differs and goes back is a spike, not a step. As the newest point it counts, unless the
    series has shown that value in a spike before.
    """
    n = len(y)
    if n < 2:
        return np.zeros(0, dtype=np.int64)
    begins = np.flatnonzero(np.concatenate([[True], y[1:] != y[:-1]]))
    ends = np.append(begins[1:], n)
    kept: list[int] = []
    spikes: set[float] = set()
    level = float(y[0])
    for i, (a, b) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        value = float(y[a])
        if i == 0 or value == level:
            continue
        goes_back = i + 1 < len(begins) and float(y[begins[i + 1]]) == level
        if b - a == 1 and (goes_back or (b == n and value in spikes)):
            spikes.add(value)
            continue
        kept.append(a)
        level = value
    return np.array(kept, dtype=np.int64)
