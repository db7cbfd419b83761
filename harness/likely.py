"""In which order a change is looked for where the budget may not reach all cases: what it most likely hits first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from .model import Case
from .rotation import grouped, spread
from .suites import questions

Kind = Literal["boundary", "unstable", "touched", "rest"]
KINDS: tuple[Kind, ...] = get_args(Kind)

#: The suite that says which shapes lie at boundaries.
BOUNDARY = "boundary"
#: Sizes next to a multiple of this begin or miss a tile of their own.
_TILE = 64


@dataclass(frozen=True)
class Likely:
    """What is known of a change before it is measured.

    ``unstable`` are keys of cases that failed or regressed lately, ``touched`` says whether what the change touches is
    under a case; None where nobody can tell, and then no case counts as touched.
    """

    unstable: Collection[str] = frozenset()
    touched: Callable[[Case], bool] | None = None

    def kinds(self, case: Case) -> tuple[bool, bool, bool]:
        """(boundary, unstable, touched), the most telling first."""
        return at_boundary(case), case.key in self.unstable, self.touched is not None and self.touched(case)

    def kind(self, case: Case) -> Kind:
        """The first kind that a case is of."""
        boundary, unstable, touched = self.kinds(case)
        return "boundary" if boundary else "unstable" if unstable else "touched" if touched else "rest"


def likely_first(cases: Sequence[Case], likely: Likely) -> list[Case]:
    """Boundary cases first, then unstable ones, then touched ones, then the rest; within each kind, those that are
    of the next kind too come first, and what is alike is spread, so that a budget leaves no corner out.

    Cases of one workload stay side by side, since they share the oracle's result: the first of them decides.
    """
    levels: dict[tuple[bool, ...], list[list[Case]]] = {}
    for group in grouped(cases):
        inside = sorted(group, key=lambda c: _rank(likely, c))
        levels.setdefault(_rank(likely, inside[0]), []).append(inside)
    return [c for rank in sorted(levels) for i in spread(len(levels[rank])) for c in levels[rank][i]]


def counted(cases: Sequence[Case], likely: Likely) -> dict[str, int]:
    """How many of ``cases`` are of each kind; kinds of which there are none are left out."""
    return dict(Counter(likely.kind(c) for c in cases))


def at_boundary(case: Case) -> bool:
    """A workload of the boundary suites, or one with a size one beside a multiple of 64."""
    w = case.workload
    sizes = (v for v in w.params.values() if isinstance(v, int) and not isinstance(v, bool) and v >= _TILE - 1)
    return (w.operation, w.label) in _boundary() or any(v % _TILE in (1, _TILE - 1) for v in sizes)


def _rank(likely: Likely, case: Case) -> tuple[bool, ...]:
    return tuple(not kind for kind in likely.kinds(case))


@cache
def _boundary() -> frozenset[tuple[str, str]]:
    return frozenset((q.operation, w.label) for q in questions() for w in q.workloads(BOUNDARY))
