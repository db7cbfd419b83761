"""Several triggers: a union of conjunctions, scored as one, each fitted again given the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .columns import Bools
from .pool import Pool
from .scoring import Scorer
from .search import Conjunction, conjunctions, mask_of, polish, score_of

_MOST = 5


@dataclass(frozen=True)
class Needs:
    """Nats that the first trigger and each further one must earn beyond their description. On shuffled labels the best
    conjunction of a table stays below zero; each nat beyond makes chance e times rarer."""

    first: float = 1.0
    further: float = 2.5


@dataclass(frozen=True)
class Union:
    """Conjunctions that together explain the rows; ``score`` is evidence of the union minus all descriptions."""

    parts: tuple[Conjunction, ...]
    score: float

    @property
    def atoms(self) -> set[tuple[int, ...]]:
        """What it says, whatever its score."""
        return {p.atoms for p in self.parts}

    def mask(self, pool: Pool) -> Bools:
        """Rows (n,) inside any of the parts."""
        out = np.zeros(pool.n, dtype=np.bool_)
        for part in self.parts:
            out |= mask_of(pool, part.atoms)
        return out


def find(pool: Pool, scorer: Scorer, first: list[Conjunction] | None = None, needs: Needs = Needs()) -> Union | None:
    """The best union, or None where no trigger earns its description. ``first`` are conjunctions found already."""
    candidates = conjunctions(pool, scorer) if first is None else first
    if not candidates or candidates[0].score < needs.first:
        return None
    starts = [candidates[0]]
    # An umbrella over two causes has the most evidence of any one conjunction, and greed never leaves it: begin once
    # more from the best that is nearly pure.
    pure = [c for c in candidates if _purity(pool, scorer, c) > max(0.75, _purity(pool, scorer, starts[0]) + 0.08)]
    starts += pure[:1]
    best: Union | None = None
    for start in starts:
        grown = _grow(pool, scorer, Union((start,), start.score), needs.further)
        if best is None or grown.score > best.score:
            best = grown
    return best


def _grow(pool: Pool, scorer: Scorer, union: Union, further: float) -> Union:
    while len(union.parts) < _MOST:
        inside = union.mask(pool)
        rest = scorer.outside(inside)
        # Not worth a search where even a perfect and cheap cover would not pay.
        if rest.ceiling() - rest.current() < further + 5.0:
            break
        found = conjunctions(pool, rest, keep=8)
        if not found:
            break
        bigger = refit(pool, scorer, (*union.parts, found[0]))
        if bigger.score < union.score + further:
            break
        union = bigger
    return union


def refit(pool: Pool, scorer: Scorer, parts: tuple[Conjunction, ...], rounds: int = 3) -> Union:
    """Polish each part given the others, and leave out those that no longer earn their description."""
    for _ in range(rounds):
        before = [p.atoms for p in parts]
        for i in range(len(parts)):
            others = parts[:i] + parts[i + 1 :]
            inside = np.zeros(pool.n, dtype=np.bool_)
            for other in others:
                inside |= mask_of(pool, other.atoms)
            if inside.all():
                continue
            seen = scorer.outside(inside)
            start = score_of(pool, seen, parts[i].atoms)
            parts = (*parts[:i], polish(pool, seen, start), *parts[i + 1 :])
        if [p.atoms for p in parts] == before:
            break
    best = union_of(pool, scorer, parts)
    for i in range(len(parts)):
        if len(parts) > 1:
            fewer = union_of(pool, scorer, parts[:i] + parts[i + 1 :])
            if fewer.score > best.score:
                return refit(pool, scorer, fewer.parts, rounds)
    return best


def union_of(pool: Pool, scorer: Scorer, parts: tuple[Conjunction, ...]) -> Union:
    """Score ``parts`` together."""
    union = Union(parts, 0.0)
    return Union(parts, scorer.of_mask(union.mask(pool)) - sum(p.cost for p in parts))


def _purity(pool: Pool, scorer: Scorer, part: Conjunction) -> float:
    """Share of rows inside that speak for it."""
    inside = mask_of(pool, part.atoms)
    return float(scorer.speaks()[inside].mean()) if inside.any() else 0.0
