"""Beyond the tested values: what else a term could mean, and which values would tell."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import prior
from .columns import Column
from .cuts import flip
from .evaluate import term_mask
from .pool import Pool
from .several import add_pairs, add_products
from .singles import column_classes
from .terms import Term

Costed = tuple[float, Term]

#: Names of one term that are combined, by number of terms in the conjunction.
_NAMES = {1: 200, 2: 24, 3: 9}
#: Places inside a gap where a limit that is no power of two may lie.
_PARTS = 8
#: Nats that a limit at such a place costs beyond one at a tested value.
_ODD_LIMIT = 1.5


def variants(terms: Sequence[Term], columns: Mapping[str, Column]) -> list[tuple[tuple[Term, ...], float]]:
    """Conjunctions whose terms have the same truth on the tested values as those of ``terms``, with their cost."""
    if not terms:
        return [((), 0.0)]
    most = _NAMES[min(3, len(terms))]
    named = [sorted(_meanings(t, columns), key=lambda c: c[0])[:most] for t in terms]
    return [
        (tuple(t for _, t in chosen), prior.conjunction([c for c, _ in chosen])) for chosen in itertools.product(*named)
    ]


def off_grid_values(column: Column, terms: Iterable[Term]) -> list[Any]:
    """Values that ``column`` has not had and on which ``terms`` may disagree; empty for text and switches."""
    if column.kind != "number" or not column.computes:
        return []
    tested = [v for v in column.values if v is not None]
    low, high = min(tested), max(tested)
    out: set[float] = set()
    if not column.whole:
        middles = [(a + b) / 2 for a, b in itertools.pairwise(tested)]
        return [v for v in (*middles, high * 2) if v not in tested]
    for a, b in itertools.pairwise(tested):
        out |= {a + (b - a) * k // _PARTS for k in range(1, _PARTS)}
        out |= {2**k + d for k in range(64) if a < 2**k < b for d in (-1, 0, 1)}
    out |= {v + d for v in tested for d in (-1, 1)} | {2 * high, 2 * high + 1, 3 * high // 2, low // 2}
    middle = int(np.median(tested))
    for term in terms:
        if term.kind == "residue":
            near = max(1, middle // term.number)
            for k in {1, 3, near, near + 1, near | 1, 9}:
                out |= {k * term.number + d for d in (0, 1, int(term.value), -1, term.number // 2)}
        if term.kind == "column" and isinstance(term.value, int | float) and term.op != "==":
            out |= {term.value + d for d in (-1, 0, 1)}
    floor = min(1, low)
    return sorted({int(v) for v in out if floor <= v <= 4 * max(high, 256)} - set(tested))


def _meanings(term: Term, columns: Mapping[str, Column]) -> list[Costed]:
    """Terms that agree with ``term`` on the tested values of its columns, with their cost."""
    used = [columns[c] for c in term.columns]
    # Several-column features are about tested combinations, the others about tested values.
    if len(used) == 1:
        column = used[0]
        classes = column_classes(column, max(1, len(columns)), np.zeros(len(column.codes)))
        truth = np.array([term.holds({column.name: v}) for v in column.values])
        found = [(cost, make()) for cost, make in classes.named.get(truth.tobytes(), [])]
        found += _limits(term, column, found)
    else:
        n = len(used[0].codes)
        pool = Pool(n)
        numeric = max(2, sum(c.computes for c in columns.values()))
        if len(used) == 2:
            add_pairs(pool, used)
            more = prior.choose(numeric, 2) - prior.choose(2, 2)
        else:
            add_products(pool, used, np.zeros(n), (len(used),))
            more = prior.choose(numeric, len(used))
        pool.close()
        truth = term_mask(term, columns, n)
        found = [(cost + more, t) for cost, t in pool.named(truth)]
    if all(t != term for _, t in found):
        found.append((min((c for c, _ in found), default=8.0), term))
    return found


def _limits(term: Term, column: Column, found: Sequence[Costed]) -> list[Costed]:
    """Limits at other places of the gap, where the truth of ``term`` is that of a limit."""
    if column.kind != "number" or not column.computes or column.numbers is None:
        return []
    limits = [(c, t) for c, t in found if t.kind == "column" and t.op in ("<", "<=", ">", ">=")]
    if not limits:
        return []
    cost, one = min(limits, key=lambda c: c[0])
    known = column.numbers[~np.isnan(column.numbers)]
    upward = one.op in (">", ">=")
    holds = np.array([one.holds({column.name: v}) for v in known.tolist()])
    first = int(np.argmax(holds)) if upward else int(np.argmin(holds))
    if first == 0:
        return []
    low, high = float(known[first - 1]), float(known[first])
    out: list[Costed] = []
    for k in range(1, _PARTS):
        value = low + (high - low) * k / _PARTS
        if column.whole:
            value = math.floor(value)
        if low < value < high:
            op = ">=" if upward else flip(">=")
            out.append((cost + _ODD_LIMIT, Term("column", term.columns, op, value, maybe_none=one.maybe_none)))
    return out
