"""Triggers of a table in a CSV file: one row per combination, with ``regressed`` or ``ratio``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .explain import Explanation, Options, Trigger, explain
from .model import InputError, Scalar
from .table import Table, read_table

#: Columns that say what happened; never features.
OUTCOMES = ("regressed", "ratio", "ratio_se")

_TRUE = frozenset({"1", "true", "yes"})
_FALSE = frozenset({"0", "false", "no"})


def explain_csv(path: str, options: Options | None = None) -> dict[str, Any]:
    """Read, explain and report; ``-`` is standard input. InputError names file, line and column."""
    table = read_table(path, text=("regressed",))
    rows, labels, ratio, errors = prepare(table)
    return report(explain(rows, labels, ratio, errors, options), rows)


def prepare(
    table: Table,
) -> tuple[list[dict[str, Scalar]], np.ndarray[Any, Any] | None, np.ndarray[Any, Any] | None, Any]:
    """Rows of parameters, labels (n,) or ratios (n,), and standard errors (n,) or None.

    ``regressed`` takes 0, 1, true, false, yes and no. ``regressed`` goes before ``ratio`` where a table has both.
    An empty ratio leaves its row out; an empty standard error is unknown.
    """
    if "regressed" not in table.columns and "ratio" not in table.columns:
        have = ", ".join(table.columns)
        raise InputError(f"{table.name}:1: no column 'regressed' or 'ratio'; one is needed, the header has {have}")
    if not len(table):
        raise InputError(f"{table.name}:2: no rows below the header; one for each combination is needed")
    rows = [{k: v for k, v in row.items() if k not in OUTCOMES} for row in table.rows()]
    if "regressed" in table.columns:
        return rows, _labels(table), None, None
    ratio = np.array(table.numbers("ratio"))
    for i, value in enumerate(ratio):
        if not math.isnan(value) and not 0 < value < math.inf:
            raise table.fail(i, "ratio", f"{value:g} is no ratio head / base; it must be positive and finite")
    if np.isnan(ratio).all():
        raise table.fail(0, "ratio", "every cell is empty; nothing to explain")
    errors = None
    if "ratio_se" in table.columns:
        errors = np.array(table.numbers("ratio_se"))
        for i, value in enumerate(errors):
            if value < 0 or math.isinf(value):
                raise table.fail(i, "ratio_se", f"{value:g} is no standard error; it must be finite and not negative")
    return rows, None, ratio, errors


def report(told: Explanation, rows: Sequence[dict[str, Scalar]]) -> dict[str, Any]:
    """The JSON contract of ``explain``: triggers with the combinations inside, and what none of them explains."""
    return {
        "triggers": [_trigger(t, rows) for t in told.triggers],
        "unexplained": [_clean(rows[i]) for i in told.unexplained],
    }


def _trigger(trigger: Trigger, rows: Sequence[dict[str, Scalar]]) -> dict[str, Any]:
    return {
        "predicate": [_clean(t.record()) for t in trigger.terms],
        "text": trigger.text,
        "regressed_inside": trigger.regressed_inside,
        "inside": trigger.inside,
        "regressed_total": trigger.regressed_total,
        "total": trigger.total,
        "effect": trigger.effect,
        "effect_ci": None if trigger.effect_interval is None else list(trigger.effect_interval),
        "combinations": [_clean(rows[i]) for i in trigger.rows],
        "counter_examples": [_clean(rows[i]) for i in trigger.counter_examples],
        "alternatives": list(trigger.alternatives),
    }


def _labels(table: Table) -> np.ndarray[Any, Any]:
    out = np.zeros(len(table), dtype=np.bool_)
    for i, cell in enumerate(table.columns["regressed"]):
        word = "" if cell is None else str(cell).strip().lower()
        if word in _TRUE:
            out[i] = True
        elif word not in _FALSE:
            what = "is empty" if not word else f"{cell!r} is neither"
            raise table.fail(i, "regressed", f"{what}; write 1 or 0 (true, false, yes, no)")
    return out


def _clean(record: dict[str, Any]) -> dict[str, Any]:
    """NaN and infinities as None: JSON has no word for them."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
