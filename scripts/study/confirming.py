"""Suspects settled again from other parts of the same recordings: what confirmation would keep and dismiss.

Nothing is measured here. A pair is two neighbouring recordings of one workload, far from where the suspect arose;
the second stands for head, multiplied by the step where the suspect is real. Labelled as emulated wherever shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.detection.sequential import SequentialOptions, decide
from harness.judge.confirm import FALSE_ALARMS
from harness.model import VerdictKind

from .nights import Array, Count, Detector, alarms


@dataclass(frozen=True)
class Confirmed:
    """How many real and how many false suspects the sequential test kept, and the pairs it took (median)."""

    real: Count
    false: Count
    pairs: float


def emulate(detector: Detector, x: Array, step: float, seed: int, most: int = 24) -> Confirmed:
    """Suspects of unchanged recordings ``x`` (log values, [workloads, points]), and of ``step`` planted in them."""
    rng = np.random.default_rng(seed)
    false = [(i, at) for _, i, at in alarms(detector, x, first=30)]
    kept_false, _ = _settle(x, false, 0.0, rng, most)
    planted = x.copy()
    start = x.shape[1] // 2
    who = np.arange(0, len(x), 8)
    real: list[tuple[int, int]] = []
    for offset in range(8):
        rows = who + offset
        rows = rows[rows < len(x)]
        planted[:] = x
        planted[rows, start:] += step
        for night in range(start + 2, start + 8, 2):
            found = detector(planted[:, :night])
            real += [
                (int(i), start) for i in rows if any(abs(k - start) <= 5 for k in found[i]) and (i, start) not in real
            ]
    kept_real, pairs = _settle(x, real, step, rng, most)
    return Confirmed(Count(kept_real, len(real)), Count(kept_false, len(false)), float(np.median(pairs or [0])))


def _settle(
    x: Array, suspects: list[tuple[int, int]], step: float, rng: np.random.Generator, most: int
) -> tuple[int, list[int]]:
    kept, took = 0, []
    for i, at in suspects:
        free = np.array([k for k in range(0, x.shape[1] - 1, 2) if abs(k - at) > 30])
        order = rng.permutation(free)[:most]
        base, head = np.exp(x[i, order]), np.exp(x[i, order + 1] + step)
        for n in range(4, len(order) + 1):
            result = decide(base[:n], head[:n], SequentialOptions(alpha=FALSE_ALARMS, futile=most))
            if result.verdict is not None:
                break
        kept += result.verdict is VerdictKind.SLOWER
        took.append(result.pairs)
    return kept, took
