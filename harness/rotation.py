"""In which order work is done that may not all fit: longest ago first, or spread evenly over the whole."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from .model import Case

#: Seconds for a case of which nothing is known, and for what asv and the worker add to a case.
_UNKNOWN_S, _OVERHEAD_S = 2.0, 0.5
#: A run that was broken off and gone on with later says nothing of what its cases cost.
_MOST_OVERHEAD_S = 10.0
#: Part of the budget that the estimate fills; the deadline holds whatever the estimate says.
_FILL = 0.9


@dataclass(frozen=True)
class Costs:
    """Seconds that cases took: case key -> mean, and what each case costs beyond its own measuring."""

    durations: Mapping[str, float] = field(default_factory=dict)
    overhead_s: float = _OVERHEAD_S

    def of(self, case: Case) -> float:
        """Estimated seconds; the middle of what is known for a case that is not."""
        return self.durations.get(case.key, self._middle) + self.overhead_s

    @cached_property
    def _middle(self) -> float:
        known = sorted(self.durations.values())
        return known[len(known) // 2] if known else _UNKNOWN_S


def overhead(wall_s: float, durations: Sequence[float]) -> float:
    """Seconds a case that a run of ``wall_s`` seconds spent beyond measuring its cases, which took ``durations``."""
    if not durations:
        return _OVERHEAD_S
    return min(max(_OVERHEAD_S, (wall_s - math.fsum(durations)) / len(durations)), _MOST_OVERHEAD_S)


def grouped(cases: Sequence[Case]) -> list[list[Case]]:
    """Cases with those of one workload together, workloads in order of first appearance: they share the oracle's
    result, which is computed once where they follow each other."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.workload.operation, case.workload.label), []).append(case)
    return list(groups.values())


def longest_ago(cases: Sequence[Case], last: Mapping[str, float]) -> list[Case]:
    """``cases`` in order of when they were last measured, those never measured first.

    Cases of one workload stay side by side, since they share the oracle's result: the workload is as old as its
    oldest case. Order among equals is kept.
    """

    def age(case: Case) -> float:
        return last.get(case.key, -math.inf)

    by_age = sorted(grouped(cases), key=lambda group: min(map(age, group)))
    return [case for group in by_age for case in sorted(group, key=age)]


def within(cases: Sequence[Case], costs: Costs, seconds: float) -> list[Case]:
    """The first of ``cases`` that are expected to fit into ``seconds``; at least one, all where all fit."""
    spent, taken = 0.0, 0
    for case in cases:
        spent += costs.of(case)
        if taken and spent > seconds * _FILL:
            break
        taken += 1
    return list(cases[:taken])


def spread(n: int) -> list[int]:
    """Indices 0 .. n-1, the last and the first before the rest, then always the middle of the widest gap."""
    order = list(dict.fromkeys([n - 1, 0])) if n else []
    gaps = [(0, n - 1)]
    while len(order) < n:
        low, high = max(gaps, key=lambda g: (g[1] - g[0], -g[0]))
        gaps.remove((low, high))
        middle = (low + high) // 2
        if middle not in (low, high):
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return order
