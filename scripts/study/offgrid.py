"""Rows with values outside the sweep, to see whether a predicate is true beyond what was tested."""

from __future__ import annotations

from typing import Any

import numpy as np

from .grids import Grid, Row


def off_grid_rows(grid: Grid, rng: np.random.Generator, n: int = 3000) -> list[Row]:
    """Rows whose numbers lie between, beside and beyond the tested ones (log-uniform, and multiples of small powers of
    two with their neighbours); half of the cells stay on tested values."""
    rows: list[Row] = []
    for _ in range(n):
        row: Row = {}
        for name, values in grid.items():
            value: Any = values[int(rng.integers(len(values)))]
            whole = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
            if len(whole) > 2 and rng.random() < 0.5:
                value = _other(whole, rng)
            row[name] = value
        rows.append(row)
    return rows


def _other(values: list[int], rng: np.random.Generator) -> int:
    low, high = max(1, min(values)), max(values)
    kind = rng.integers(3)
    if kind == 0:
        return int(np.exp(rng.uniform(np.log(low), np.log(2 * high))))
    if kind == 1:
        return max(1, values[int(rng.integers(len(values)))] + int(rng.integers(-1, 2)))
    unit = 2 ** int(rng.integers(3, 9))
    return max(
        1, unit * int(rng.integers(1, max(2, 2 * high // unit + 1))) + int(rng.integers(-1, 2)) * int(rng.integers(2))
    )
