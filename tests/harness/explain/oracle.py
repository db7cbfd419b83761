"""Slow, plain versions of what the engine does with arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def evaluate(text: str, row: Mapping[str, Any]) -> bool:
    """What a user of ``text`` does: Python's own eval over the columns."""
    names = {"col": row, "log2": math.log2, "ceil": math.ceil, **{k: v for k, v in row.items() if k.isidentifier()}}
    names.update({"log2": math.log2, "ceil": math.ceil, "col": row})
    return bool(eval(text, {"__builtins__": {}}, names))


def log_beta(a: float, b: float) -> float:
    """Logarithm of the beta function."""
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def label_evidence(inside: Sequence[bool], regressed: Sequence[bool], noise: float) -> float:
    """Marginal likelihood of two rates of noise, Beta(1, noise) each, over the best single rate; by counting rows."""
    n = len(inside)
    hit = sum(i and r for i, r in zip(inside, regressed, strict=True))
    false = sum(i and not r for i, r in zip(inside, regressed, strict=True))
    missed = sum(r and not i for i, r in zip(inside, regressed, strict=True))
    silent = n - hit - false - missed
    two = log_beta(1 + false, noise + hit) + log_beta(1 + missed, noise + silent) - 2 * log_beta(1, noise)
    k = hit + missed
    one = sum(c * math.log(c / n) for c in (k, n - k) if c)
    return two - one
