"""Columns of a table of combinations, coded: distinct values once, rows as indices into them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

#: Above this, a float no longer tells neighbouring integers apart.
_EXACT = 2.0**53


@dataclass(frozen=True, eq=False)
class Column:
    """One parameter.

    ``values`` are the m distinct values (numbers in order, None last), ``codes`` (n,) says which one each row has.
    ``numbers`` (m,) holds them as float64 with NaN for None, or None where the column is no number; ``whole`` is
    True where every number is a finite integer that float64 holds exactly.
    """

    name: str
    kind: str  # "number", "bool", "text" or "mixed"
    values: tuple[Any, ...]
    codes: Ints
    numbers: Floats | None
    whole: bool

    @property
    def m(self) -> int:
        """Number of distinct values."""
        return len(self.values)

    @property
    def has_none(self) -> bool:
        """True where a cell is missing."""
        return bool(self.values) and self.values[-1] is None

    @property
    def computes(self) -> bool:
        """True where residues, products and ratios make sense: finite numbers, some of them missing at most."""
        return self.kind == "number" and self.numbers is not None and bool(self._finite().all())

    def _finite(self) -> Bools:
        assert self.numbers is not None
        known = self.numbers[: self.m - self.has_none]
        return np.isfinite(known) & (np.abs(known) <= _EXACT)

    def take(self, rows: Ints) -> Column:
        """The same column on some rows; distinct values are kept as they are."""
        return Column(self.name, self.kind, self.values, self.codes[rows], self.numbers, self.whole)


def encode(name: str, cells: Sequence[Any]) -> Column | None:
    """Code one column; None where it holds something that is no bool, number or text."""
    index: dict[Any, int] = {}
    codes = np.empty(len(cells), dtype=np.int64)
    for i, cell in enumerate(cells):
        if isinstance(cell, np.generic):
            cell = cell.item()
        if cell is not None and not isinstance(cell, bool | int | float | str):
            return None
        codes[i] = index.setdefault("\0nan" if cell != cell else cell, len(index))
    values = [math.nan if v == "\0nan" else v for v in index]
    known = [v for v in values if v is not None]
    if all(isinstance(v, bool) for v in known):
        kind = "bool"
    elif all(isinstance(v, int | float) for v in known):
        kind = "number"
    else:
        kind = "text" if all(isinstance(v, str) for v in known) else "mixed"
    if any(isinstance(v, int) and abs(v) > _EXACT for v in known):
        # Order and arithmetic in float64 would not be Python's: such numbers are names.
        kind = "mixed"
    if not known:
        kind = "text"
    order = sorted(range(len(values)), key=lambda i: _sort_key(values[i]))
    rank = np.empty(len(values), dtype=np.int64)
    rank[order] = np.arange(len(values))
    values = [values[i] for i in order]
    numbers: Floats | None = None
    whole = False
    if kind in ("number", "bool"):
        numbers = np.array([math.nan if v is None else _float(v) for v in values])
        known_numbers = numbers[: len(known)]
        whole = bool(np.all(np.isfinite(known_numbers) & (np.abs(known_numbers) <= _EXACT)))
        whole = whole and bool(np.all(known_numbers == np.floor(known_numbers)))
    return Column(name, kind, tuple(values), rank[codes], numbers, whole)


def encode_rows(rows: Sequence[Mapping[str, Any]], exclude: frozenset[str] = frozenset()) -> list[Column]:
    """Columns of ``rows`` in order of first appearance; a key that a row lacks counts as missing."""
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    columns = [encode(n, [row.get(n) for row in rows]) for n in names if n not in exclude]
    return [c for c in columns if c is not None]


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _sort_key(value: Any) -> tuple[int, float, str]:
    if value is None:
        return (9, 0.0, "")
    if isinstance(value, str):
        return (2, 0.0, value)
    if value != value:
        return (1, 0.0, "")
    return (0, _float(value), "")
