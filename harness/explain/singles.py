"""Atoms about one column: values, sets, thresholds, residues, powers of two and their neighbours."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np

from . import prior
from .columns import Bools, Column, Floats
from .cuts import cuts_between, flip
from .pool import Classes, Pool
from .terms import Term

#: Columns with more distinct values than this are searched by threshold and residue only.
_MANY = 64
#: Sets are enumerated up to this many distinct values; beyond it they are guided by the outcome.
_SET_VALUES = 10
_MAX_SET_TEXT = 4
_MAX_SET_NUMBER = 3
_MAX_CUTS = 96
#: Moduli up to this have all their residues tried, larger ones of a column with many values those that tell most.
_ALL_RESIDUES = 16
#: Atoms about single columns in all, and for one column at least, where a table has many columns.
_ATOMS = 12_000
_FEWEST = 60


def add_column(pool: Pool, column: Column, total: int, outcome: Floats) -> None:
    """Add all atoms about ``column``, one of ``total`` features. ``outcome`` (n,) is 1 for regressed rows, 0 for the
    others, or a weight of evidence between; it guides which sets are tried when there are too many."""
    classes = column_classes(column, total, outcome)
    classes.into(pool, column.codes, outcome, max(_FEWEST, _ATOMS // total))


def column_classes(column: Column, total: int, outcome: Floats) -> Classes:
    """The atoms of ``add_column`` by their truth on the distinct values."""
    classes = Classes()
    which = math.log(total)
    _values(classes, column, which, outcome)
    if column.kind == "number" and column.numbers is not None:
        _thresholds(classes, column, which)
        if column.computes and column.whole:
            _residues(classes, column, which, outcome)
            _powers(classes, column, which)
    return classes


def _term(column: Column, kind: str, op: str, value: object, number: int = 0) -> Term:
    none = frozenset({column.name}) if column.has_none else frozenset()
    return Term(kind, (column.name,), op, value, number, column.kind == "bool", none)


def _values(classes: Classes, column: Column, which: float, outcome: Floats) -> None:
    base = prior.FAMILY["column"] + which
    m = column.m
    nan = [isinstance(v, float) and math.isnan(v) for v in column.values]
    counts = np.bincount(column.codes, minlength=m)
    if m <= _MANY:
        chosen = [i for i in range(m) if not nan[i]]
    else:
        # A value seen on one row alone explains that row and nothing else.
        frequent = np.argsort(-counts, kind="stable")[:_MANY]
        chosen = [int(i) for i in frequent if counts[i] >= 3 and not nan[i]]
    for i in chosen:
        mask = np.zeros(m, dtype=np.bool_)
        mask[i] = True
        value = column.values[i]
        cost = base + math.log(m) + (0.0 if column.kind == "bool" else 0.6)
        classes.put(mask, cost, partial(_term, column, "column", "==", value))
        if column.kind != "bool" or m > 2:
            classes.put(~mask, cost + 0.7, partial(_term, column, "column", "!=", value))
    if column.kind == "bool" or m <= 3:
        return
    extra = 1.6 if column.kind in ("text", "mixed") else 2.4
    for members in _sets(column, chosen, outcome, counts):
        mask = np.zeros(m, dtype=np.bool_)
        mask[list(members)] = True
        cost = base + extra + prior.choose(m, len(members)) + 0.3 * len(members)
        classes.put(mask, cost, partial(_term, column, "column", "in", tuple(column.values[i] for i in members)))


def _sets(
    column: Column, chosen: list[int], outcome: Floats, counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> list[tuple[int, ...]]:
    text = column.kind in ("text", "mixed")
    m = len(chosen)
    if m <= _SET_VALUES:
        largest = min(m - 2, _MAX_SET_TEXT if text else _MAX_SET_NUMBER)
        return [s for size in range(2, largest + 1) for s in itertools.combinations(chosen, size)]
    # For one column the best set is a prefix of the values in order of their rate.
    sums = np.bincount(column.codes, weights=outcome, minlength=len(counts))
    rate = sums / np.maximum(counts, 1)
    order = sorted(chosen, key=lambda i: -rate[i])
    return [tuple(sorted(order[:size])) for size in range(2, min(m - 1, 10))]


def _thresholds(classes: Classes, column: Column, which: float) -> None:
    assert column.numbers is not None
    base = prior.FAMILY["column"] + which + 0.8
    known = column.numbers[~np.isnan(column.numbers)]
    places = np.arange(len(known) - 1)
    if len(places) > _MAX_CUTS:
        even = np.linspace(0, len(places) - 1, _MAX_CUTS).astype(int)
        powers = 2.0 ** np.arange(1, 40)
        near = np.searchsorted(known, powers) - 1
        places = np.unique(np.concatenate([even, near[(near >= 0) & (near < len(places))]]))
    size = math.log(max(1, len(known) - 1))
    for i in places:
        for op, value, extra in cuts_between(float(known[i]), float(known[i + 1])):
            number = _as_given(column, value)
            upper = _order(column.numbers, op, value)
            lower = _order(column.numbers, flip(op), value)
            classes.put(upper, base + size + extra + 0.5, partial(_term, column, "column", op, number))
            classes.put(lower, base + size + extra + 0.9, partial(_term, column, "column", flip(op), number))


def _residues(classes: Classes, column: Column, which: float, outcome: Floats) -> None:
    assert column.numbers is not None
    base = prior.FAMILY["residue"] + which
    known = ~np.isnan(column.numbers)
    values = np.where(known, column.numbers, 0).astype(np.int64)
    top = int(np.abs(values).max(initial=0)) + 1
    many = column.m > _MANY
    # How much more often the rows of each value regressed than rows at large.
    surplus = np.bincount(column.codes, weights=outcome - outcome.mean(), minlength=column.m)
    for number in range(2, min(256, max(top, 2)) + 1):
        rest = values % number
        present = {0, *(int(r) for r in rest[known])}
        if many:
            by_rest = np.bincount(rest[known], weights=surplus[known], minlength=number)
            telling = {int(by_rest.argmax()), int(by_rest.argmin())}
            usual = {0, 1, number // 2, number - 1} if number in prior.KNOWN_MODULI else {0}
            present &= usual | telling if number > _ALL_RESIDUES else present
        for r in present:
            mask = (rest == r) & known
            hit = int(mask.sum())
            if hit == 0 or hit == len(values):
                continue
            cost = base + prior.modulus(number)
            make = partial(_term, column, "residue")
            classes.put(mask, cost + prior.residue(number, r, True), partial(make, "==", r, number))
            classes.put(~mask & known, cost + prior.residue(number, r, False), partial(make, "!=", r, number))


def _powers(classes: Classes, column: Column, which: float) -> None:
    assert column.numbers is not None
    for offset in (0, 1, -1):
        shifted = column.numbers - offset
        usable = np.nan_to_num(shifted) > 0
        fraction = np.full(column.m, np.nan)
        # math.log2, as in the text: numpy's may differ in the last bit.
        fraction[usable] = [math.log2(v) % 1 for v in shifted[usable]]
        cost = prior.FAMILY["power"] + which + (0.7 if offset == 0 else 1.4)
        make = partial(_term, column, "power")
        classes.put(usable & (fraction == 0), cost, partial(make, "==", 0, offset))
        classes.put(usable & (fraction != 0), cost + 0.1, partial(make, "!=", 0, offset))


def _order(numbers: Floats, op: str, value: float) -> Bools:
    with np.errstate(invalid="ignore"):
        match op:
            case ">":
                return numbers > value
            case ">=":
                return numbers >= value
            case "<":
                return numbers < value
    return numbers <= value


def _as_given(column: Column, value: float) -> float | int:
    """Whole numbers as int, so that a text reads ``> 128`` and not ``> 128.0``."""
    return int(value) if math.isfinite(value) and value == math.floor(value) else value
