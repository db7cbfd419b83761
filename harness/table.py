"""Tables from CSV files: UTF-8 with a header, typed by column, errors that name file, line and column.

Cells parse per column as int, float, bool (``true/false/yes/no``), else text; an empty cell is None.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .model import InputError, Scalar
from .model.reading import read_text

# Longer ones Python itself refuses to read.
_INT = re.compile(r"[+-]?\d{1,4000}")
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?|nan)", re.IGNORECASE)
_BOOL = {"true": True, "yes": True, "false": False, "no": False}
#: Longest cell that is taken; a missing quote would otherwise swallow the file.
_MAX_CELL = 1_000_000


@dataclass
class Table:
    """Columns in order of the header, as lists of equal length. ``lines[i]`` is the line where row i began."""

    name: str
    columns: dict[str, list[Scalar]]
    lines: Sequence[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lines)

    def require(self, *names: str) -> None:
        """InputError for a column that is missing, listing those there are."""
        for name in names:
            if name not in self.columns:
                have = ", ".join(self.columns) or "none"
                raise InputError(f"{self.name}:1: no column {name!r}; the header has {have}")

    def fail(self, row: int, column: str, why: str) -> InputError:
        """An error that names file, line and column."""
        return InputError(f"{self.name}:{self.lines[row]}: column {column!r}: {why}")

    def numbers(self, column: str, *, empty: float | None = math.nan) -> list[float]:
        """The column as floats; ``empty`` for empty cells, or an error where ``empty`` is None."""
        out: list[float] = []
        for i, value in enumerate(self.columns[column]):
            if value is None and empty is not None:
                out.append(empty)
            elif isinstance(value, str) and (_FLOAT.fullmatch(value) or _INT.fullmatch(value)):
                # One bad cell makes the whole column text; the error must name that cell, not the first.
                out.append(float(value))
            elif isinstance(value, bool) or not isinstance(value, int | float):
                what = "is empty" if value is None else f"{value!r} is no number"
                raise self.fail(i, column, what)
            else:
                out.append(float(value))
        return out

    def rows(self) -> list[dict[str, Scalar]]:
        """Rows as mappings."""
        names = list(self.columns)
        return [dict(zip(names, cells, strict=True)) for cells in zip(*self.columns.values(), strict=True)]


def read_table(path: str, *, text: Sequence[str] = ()) -> Table:
    """Read a CSV file; ``-`` is standard input. Columns named in ``text`` stay text whatever they hold."""
    name = "<stdin>" if path == "-" else path
    raw = _read(path, name)
    reader = csv.reader(io.StringIO(raw, newline=""), strict=True)
    csv.field_size_limit(_MAX_CELL)
    try:
        header = next(reader, None)
    except csv.Error as err:
        raise InputError(f"{name}:1: {err}") from None
    if not header or not any(h.strip() for h in header):
        raise InputError(f"{name}:1: empty; a header and rows are needed")
    names = [h.strip() for h in header]
    for i, column in enumerate(names):
        if not column:
            raise InputError(f"{name}:1: column {i + 1} has no name")
        if column in names[:i]:
            raise InputError(f"{name}:1: column {column!r} stands twice in the header")
    cells: list[list[str]] = []
    lines: list[int] = []
    line = reader.line_num + 1
    try:
        for row in reader:
            if row:
                if len(row) != len(names):
                    raise InputError(f"{name}:{line}: {len(row)} cells where the header has {len(names)}")
                cells.append(row)
                lines.append(line)
            line = reader.line_num + 1
    except csv.Error as err:
        raise InputError(f"{name}:{line}: {err}") from None
    by_column = list(zip(*cells, strict=True)) if cells else [()] * len(names)
    return Table(name, {n: _typed(c, n in text) for n, c in zip(names, by_column, strict=True)}, lines)


def _read(path: str, name: str) -> str:
    text = read_text(path)
    if "\0" in text:
        raise InputError(f"{name}:{text.count(chr(10), 0, text.index(chr(0))) + 1}: holds a null byte; not a CSV file")
    return text


def _typed(cells: Sequence[str], keep_text: bool) -> list[Scalar]:
    stripped = [c.strip() for c in cells]
    if keep_text:
        return [c if c else None for c in stripped]
    present = set(stripped) - {""}
    convert: Callable[[str], Scalar] = str
    if all(_INT.fullmatch(c) for c in present):
        convert = int
    elif all(_FLOAT.fullmatch(c) or _INT.fullmatch(c) for c in present):
        convert = float
    elif all(c.lower() in _BOOL for c in present):
        convert = lambda c: _BOOL[c.lower()]  # noqa: E731
    values: dict[str, Scalar] = {c: convert(c) for c in present}
    values[""] = None
    return [values[c] for c in stripped]
