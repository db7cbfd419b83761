"""Masks of terms over coded columns, by the same rule as a single row is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .columns import Bools, Column, Ints
from .terms import Term


def term_mask(term: Term, columns: Mapping[str, Column], n: int) -> Bools:
    """Rows (n,) for which ``term`` holds; each distinct combination of cells is judged once."""
    used = [columns[c] for c in dict.fromkeys(term.columns)]
    joint: Ints = np.zeros(n, dtype=np.int64)
    for column in used:
        joint = joint * column.m + column.codes
    _, first, codes = np.unique(joint, return_index=True, return_inverse=True)
    truth = [term.holds({c.name: c.values[c.codes[i]] for c in used}) for i in first]
    out: Bools = np.array(truth, dtype=np.bool_)[codes.reshape(-1)]
    return out


def terms_mask(terms: Sequence[Term], columns: Mapping[str, Column], n: int) -> Bools:
    """Rows (n,) for which all ``terms`` hold."""
    out = np.ones(n, dtype=np.bool_)
    for term in terms:
        out &= term_mask(term, columns, n)
    return out
