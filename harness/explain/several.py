"""Atoms about several columns: products, ratios, remainders, ceil-divisions, comparisons."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from . import prior
from .columns import Bools, Column, Floats, Ints
from .cuts import cuts_between, flip, powers_in, simple_between
from .pool import Classes, Named, Pool
from .terms import Term

#: Distinct values of a feature beyond which cuts are thinned.
_MAX_CUTS = 48
#: Products of three and four columns that are searched.
_MAX_PRODUCTS = 5000


def add_pairs(pool: Pool, columns: Sequence[Column]) -> None:
    """Add atoms about two of ``columns``."""
    numeric = [c for c in columns if c.computes]
    # Never cheaper to name than one column: with two numbers in a table there is one pair, and still two to say.
    which = max(prior.choose(max(2, len(numeric)), 2), math.log(max(1, len(columns))) + 0.7)
    for a, b in itertools.combinations(columns, 2):
        both = a.computes and b.computes
        if not both and not (a.kind == b.kind == "text" and set(a.values) & set(b.values) - {None}):
            continue
        pairs, codes = np.unique(a.codes * b.m + b.codes, return_inverse=True)
        classes = Classes()
        pair = _Pair(a, b, pairs // b.m, pairs % b.m, classes, which)
        if both:
            pair.compare()
            pair.product()
            pair.ratio()
            pair.rest()
        else:
            pair.same_text()
        classes.into(pool, codes.reshape(-1))


def add_products(pool: Pool, columns: Sequence[Column], outcome: Floats, sizes: Sequence[int] = (3, 4)) -> None:
    """Add products of three and four columns against powers of two, where 16- and 32-bit counters overflow; those that
    go best with ``outcome`` (n,) where there are very many."""
    usable = [c for c in columns if c.computes and not c.has_none and c.numbers is not None and (c.numbers > 0).all()]
    masks: list[Bools] = []
    named: list[list[Named]] = []
    values = {c.name: c.numbers[c.codes] for c in usable if c.numbers is not None}
    for size in sizes:
        which = prior.choose(len(usable), size)
        for group in itertools.combinations(usable, size):
            product = np.prod([values[c.name] for c in group], axis=0)
            low, high = float(product.min()), float(product.max())
            powers = powers_in(low, high)
            names = tuple(c.name for c in group)
            cost = prior.FAMILY[f"product{size}"] + which + math.log(max(1, len(powers)))
            for p in powers:
                # 2**16 and 2**31 are where counters end; the others are chance unless data says so.
                odd = 0.0 if p in (2.0**16, 2.0**31, 2.0**32) else 0.8
                value = int(p)
                for op, mask, extra in ((">", product > p, 0.3), (">=", product >= p, 0.4)):
                    masks += [mask, ~mask]
                    up = partial(Term, "product", names, op, value)
                    down = partial(Term, "product", names, flip(op), value)
                    named += [[(cost + extra + odd, up)], [(cost + extra + odd + 1.0, down)]]
    if not masks:
        return
    table = np.array(masks)
    if len(table) > _MAX_PRODUCTS:
        sizes = table.sum(axis=1)
        excess = table.astype(np.float32) @ (outcome - outcome.mean()).astype(np.float32)
        worth = np.abs(excess) / np.sqrt(np.maximum(1, np.minimum(sizes, table.shape[1] - sizes)))
        best = np.sort(np.argsort(-worth, kind="stable")[:_MAX_PRODUCTS])
        table, named = table[best], [named[i] for i in best]
    pool.add(table, named)


class _Pair:
    """Features of two columns on their distinct pairs of values; ``i`` and ``j`` (pairs,) index the values."""

    def __init__(self, a: Column, b: Column, i: Ints, j: Ints, classes: Classes, which: float) -> None:
        self.a, self.b, self.i, self.j, self.classes = a, b, i, j, classes
        self.names = (a.name, b.name)
        self.none = frozenset(c.name for c in (a, b) if c.has_none)
        self.which = which - prior.alike(self.names)
        if a.numbers is not None and b.numbers is not None:
            self.x: Floats = a.numbers[i]
            self.y: Floats = b.numbers[j]
            self.known = ~(np.isnan(self.x) | np.isnan(self.y))

    def term(self, kind: str, op: str, value: object, swapped: bool = False) -> Term:
        names = self.names[::-1] if swapped else self.names
        return Term(kind, names, op, value, maybe_none=self.none)

    def compare(self) -> None:
        cost = prior.FAMILY["compare"] + self.which
        x, y, known = self.x, self.y, self.known
        # Python finds two missing cells equal.
        equal = (x == y) | (np.isnan(x) & np.isnan(y))
        for op, mask, extra in (
            ("<", (x < y) & known, 1.6), (">", (x > y) & known, 1.6), ("==", equal, 1.6), ("!=", ~equal, 1.6),
            ("<=", (x <= y) & known, 2.1), (">=", (x >= y) & known, 2.1),
        ):  # fmt: skip
            self.classes.put(mask, cost + extra, partial(self.term, "compare", op, None))

    def same_text(self) -> None:
        values_a, values_b = self.a.values, self.b.values
        equal = np.array([values_a[i] == values_b[j] for i, j in zip(self.i, self.j, strict=True)])
        cost = prior.FAMILY["compare"] + self.which + 0.7
        self.classes.put(equal, cost, partial(self.term, "compare", "==", None))
        self.classes.put(~equal, cost, partial(self.term, "compare", "!=", None))

    def product(self) -> None:
        product = self.x * self.y
        levels = np.unique(product[self.known])
        if len(levels) < 2 or levels[0] < 0:
            return
        cost = prior.FAMILY["product2"] + self.which + math.log(len(levels) - 1)
        for k in _places(levels):
            for op, value, extra in cuts_between(float(levels[k]), float(levels[k + 1]))[:2]:
                if not float(value).is_integer():
                    continue
                upper = (product > value if op == ">" else product >= value) & self.known
                lower = ~upper & self.known
                number = int(value)
                self.classes.put(upper, cost + extra + 0.4, partial(self.term, "product", op, number))
                self.classes.put(lower, cost + extra + 1.2, partial(self.term, "product", flip(op), number))

    def ratio(self) -> None:
        x, y, known = self.x, self.y, self.known
        if not ((x[known] > 0).all() and (y[known] > 0).all()) or not known.any():
            return
        quotient = np.where(known, x, 1) / np.where(known, y, 1)
        levels = np.unique(quotient[known])
        if len(levels) < 2:
            return
        cost = prior.FAMILY["ratio"] + self.which + math.log(len(levels))
        for k in _places(levels):
            for op, value, swapped, extra in _ratio_cuts(float(levels[k]), float(levels[k + 1])):
                for sign, more in ((op, 0.6), (flip(op), 0.9)):
                    self._ratio(sign, value, swapped, cost + extra + more)
        for level in levels if len(levels) <= _MAX_CUTS else ():
            value, swapped = (level, False) if level >= 1 else (1 / level, True)
            if abs(value - round(value)) < 1e-9 and round(value) > 1:
                odd = 0.3 if round(value) & (round(value) - 1) == 0 else 0.8
                self._ratio("==", round(value), swapped, cost + 0.9 + odd)
                self._ratio("!=", round(value), swapped, cost + 1.6 + odd)
                if not swapped:
                    self._ceil("==", round(value), cost + 1.9)

    def _ratio(self, op: str, value: float, swapped: bool, cost: float) -> None:
        left, right = (self.y, self.x) if swapped else (self.x, self.y)
        mask = _ORDERS[op](left, value * right) & self.known
        self.classes.put(mask, cost, partial(self.term, "ratio", op, value, swapped))

    def _ceil(self, op: str, value: int, cost: float) -> None:
        parts = np.ceil(np.where(self.known, self.x, 1) / np.where(self.known, self.y, 1))
        extra = prior.FAMILY["ceil"] - prior.FAMILY["ratio"]
        self.classes.put((parts == value) & self.known, cost + extra, partial(self.term, "ceil", op, value))

    def rest(self) -> None:
        if not (self.a.whole and self.b.whole):
            return
        for left, right, swapped in ((self.x, self.y, False), (self.y, self.x, True)):
            usable = self.known & (np.nan_to_num(right) != 0)
            if not usable.any():
                continue
            zero = np.where(usable, left, 1) % np.where(usable, right, 1) == 0
            # A remainder by the larger of two is the smaller itself.
            small = 0.0 if np.median(left[usable]) >= np.median(right[usable]) else 1.5
            cost = prior.FAMILY["rest"] + self.which + 0.7 + small
            self.classes.put(zero & usable, cost, partial(self.term, "rest", "==", 0, swapped))
            self.classes.put(~zero & usable, cost, partial(self.term, "rest", "!=", 0, swapped))


_ORDERS = {
    ">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip


def _places(levels: Floats) -> list[int]:
    """Gaps to cut in: all, or where there are many those with a power of two and an even choice of others."""
    last = len(levels) - 1
    if last <= _MAX_CUTS:
        return list(range(last))
    even = {int(k) for k in np.linspace(0, last - 1, _MAX_CUTS)}
    near = {int(k) - 1 for k in np.searchsorted(levels, 2.0 ** np.arange(1, 62))}
    return sorted(even | {k for k in near if 0 <= k < last})


def _ratio_cuts(low: float, high: float) -> list[tuple[str, float, bool, float]]:
    """(operator, value, columns swapped, extra cost) for a cut of a ratio; the complement is the other side. Below one
    the ratio is turned over, so that values are whole numbers where they can be."""
    if high <= 1:
        return [(op, v, True, extra) for op, v, _, extra in _ratio_cuts(1 / high, 1 / low)]
    if low < 1:
        return []  # the cut at one is a comparison
    for value in range(math.ceil(low - 1e-9), min(math.floor(high + 1e-9), 1 << 20) + 1):
        if value > 1 and value & (value - 1) == 0:
            return _whole_cut(value, low, high, 0.2)
    whole = math.ceil(low - 1e-9)
    if whole <= high + 1e-9 and whole > 1:
        return _whole_cut(whole, low, high, 0.8)
    return [(">", simple_between(low, high), False, 2.0)]


def _whole_cut(value: int, low: float, high: float, extra: float) -> list[tuple[str, float, bool, float]]:
    if abs(value - low) < 1e-9:
        return [(">", value, False, extra)]
    if abs(value - high) < 1e-9:
        return [(">=", value, False, extra)]
    return [(">", value, False, extra + 0.1), (">=", value, False, extra + 0.2)]
