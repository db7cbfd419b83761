"""``attnwatch detect --csv``: change points of the series in a long table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from .detection.changes import Change, Detected, DetectOptions, detect_flat
from .model import InputError, Scalar, VerdictKind
from .table import Table, read_table

_BETTER = ("lower", "higher")


@dataclass(frozen=True)
class SeriesTable:
    """Series end to end: ``values`` [rows], series i from ``start[i]`` to ``start[i + 1]``; NaN for gaps."""

    names: list[str]
    better: list[str]
    values: npt.NDArray[np.float64]
    start: npt.NDArray[np.int64]


def detect_csv(path: str, options: DetectOptions = DetectOptions(), *, pool: bool = False) -> dict[str, Any]:  # noqa: B008
    """Change points of a CSV file with the columns ``series,value`` and optionally ``time``, ``better``, ``unit``.

    Rows of a series are in order of time; rows of different series may alternate. Empty, NaN and infinite values
    are gaps. Returns ``{"series": {name: {"n", "gaps", "scale", "change_points": [...]}}}``.
    Raises InputError, with file, line and column, for anything else.
    """
    table = read_series(path)
    return report(table, detect_flat(table.values, table.start, options, pool=pool))


def read_series(path: str) -> SeriesTable:
    """The file as series, in the order in which they first appear."""
    table = read_table(path, text=("series", "better", "unit"))
    table.require("series", "value")
    if not len(table):
        raise InputError(f"{table.name}:1: no rows below the header")
    values = np.array(table.numbers("value"), dtype=float)
    numbers: dict[str, int] = {}
    ids = np.empty(len(table), dtype=np.int64)
    for i, name in enumerate(table.columns["series"]):
        if name is None:
            raise table.fail(i, "series", "is empty")
        ids[i] = numbers.setdefault(str(name), len(numbers))
    order = np.argsort(ids, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(ids, minlength=len(numbers)))]).astype(np.int64)
    if "time" in table.columns:
        _check_times(table, ids, order)
    better = _constant(table, "better", ids, len(numbers), "lower")
    for i, side in enumerate(better):
        if side not in _BETTER:
            row = next(r for r in np.flatnonzero(ids == i).tolist() if table.columns["better"][r] is not None)
            raise table.fail(row, "better", f"must be lower or higher, not {side!r}")
    _constant(table, "unit", ids, len(numbers), "")
    return SeriesTable(list(numbers), better, np.where(np.isfinite(values), values, np.nan)[order], start)


def _constant(table: Table, column: str, ids: npt.NDArray[np.int64], series: int, missing: str) -> list[str]:
    """The one value that a column has in each series; an error where it has two."""
    out = [missing] * series
    if column not in table.columns:
        return out
    seen: dict[int, str] = {}
    for i, (k, cell) in enumerate(zip(ids.tolist(), table.columns[column], strict=True)):
        if cell is None:
            continue
        value = str(cell)
        if seen.setdefault(k, value) != value:
            why = f"{value!r} here and {seen[k]!r} in an earlier row of series {table.columns['series'][i]!r}"
            raise table.fail(i, column, why)
        out[k] = value
    return out


def _check_times(table: Table, ids: npt.NDArray[np.int64], order: npt.NDArray[np.int64]) -> None:
    """Times must rise within each series: a shuffled history would give changes that never were."""
    times = np.array(_times(table))
    t, k = times[order], ids[order]
    wrong = np.flatnonzero((k[1:] == k[:-1]) & (t[1:] <= t[:-1]))
    if len(wrong):
        at = int(wrong[0]) + 1
        row = int(order[at])
        same = t[at] == t[at - 1]
        cell = table.columns["time"][row]
        why = f"{cell!r} stands twice in" if same else f"{cell!r} is earlier than the row before in"
        raise table.fail(row, "time", f"{why} series {table.columns['series'][row]!r}; sort by time, one row a time")


def _times(table: Table) -> list[float]:
    cells: Sequence[Scalar] = table.columns["time"]
    out: list[float] = []
    for i, cell in enumerate(cells):
        if cell is None:
            raise table.fail(i, "time", "is empty")
        if isinstance(cell, str):
            try:
                moment = datetime.fromisoformat(cell)
            except ValueError:
                raise table.fail(i, "time", f"{cell!r} is neither a number nor an ISO 8601 time") from None
            out.append((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
        elif math.isfinite(float(cell)):
            out.append(float(cell))
        else:
            raise table.fail(i, "time", f"{cell!r} is no time")
    return out


def report(table: SeriesTable, found: Detected) -> dict[str, Any]:
    """The JSON contract of ``detect --csv``."""
    series: dict[str, Any] = {}
    for i, name in enumerate(table.names):
        values = table.values[table.start[i] : table.start[i + 1]]
        series[name] = {
            "n": len(values),
            "gaps": int(np.isnan(values).sum()),
            "scale": "log" if found.log[i] else "linear",
            "change_points": [point(c, table.better[i]) for c in found.changes[i]],
        }
    return {"series": series}


def point(c: Change, better: str) -> dict[str, Any]:
    """One change as plain values."""
    return {
        "index": c.index,
        "before": c.before,
        "after": c.after,
        "ratio": c.ratio,
        "ratio_ci": None if c.low is None else [c.low, c.high],
        "confidence": 1 - c.p,
        "verdict": c.verdict(better).value,
        "state": "suspect" if c.suspect else "historical",
        "kind": c.kind,
    }


def adverse(result: dict[str, Any]) -> bool:
    """Whether a series has an adverse change that is so recent that it is still a suspect."""
    return any(
        c["verdict"] == VerdictKind.SLOWER.value and c["state"] == "suspect"
        for s in result["series"].values()
        for c in s["change_points"]
    )
