"""From columns to a pool of atoms, within limits that keep tables of many columns affordable."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .columns import Column, Floats
from .pool import Pool
from .several import add_pairs, add_products
from .singles import add_column

#: Columns that are paired, and that are multiplied by three and four; the most telling ones where there are more.
_PAIRED = 14
_MULTIPLIED = 10


def build_pool(columns: Sequence[Column], n: int, outcome: Floats, *, several: bool = True) -> Pool:
    """All atoms over ``columns`` on n rows. ``outcome`` (n,) in 0..1 is how much each row speaks for a regression."""
    pool = Pool(n)
    useful = [c for c in columns if c.m > 1]
    for column in useful:
        add_column(pool, column, len(useful), outcome)
    pool.end_of_simple()
    if several:
        numeric = [c for c in useful if c.computes and c.kind == "number"]
        texts = [c for c in useful if c.kind == "text"]
        # Numbers near the end of float64 overflow to infinity, as they do in Python.
        with np.errstate(over="ignore", invalid="ignore"):
            add_pairs(pool, [*_most_telling(numeric, outcome, _PAIRED), *_most_telling(texts, outcome, _PAIRED)])
            add_products(pool, _most_telling(numeric, outcome, _MULTIPLIED), outcome)
    return pool.close()


def _most_telling(columns: list[Column], outcome: Floats, most: int) -> list[Column]:
    if len(columns) <= most:
        return columns
    worth = [_variance_explained(c, outcome) for c in columns]
    best = sorted(range(len(columns)), key=lambda i: -worth[i])[:most]
    return [columns[i] for i in sorted(best)]


def _variance_explained(column: Column, outcome: Floats) -> float:
    """Share of the outcome's variance between values of the column, less what chance would give."""
    n = len(outcome)
    codes, m = column.codes, column.m
    if m > 32:
        codes, m = codes * 16 // m, 16
    counts = np.bincount(codes, minlength=m)
    means = np.bincount(codes, weights=outcome, minlength=m) / np.maximum(counts, 1)
    between = float((counts * (means - outcome.mean()) ** 2).sum())
    within = float(((outcome - means[codes]) ** 2).sum()) / max(1, n - m)
    return between - within * (m - 1)
