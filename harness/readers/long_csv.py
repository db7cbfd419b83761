"""CSV: ``series,value[,time,...]``, or one row per case with parameter columns and one column for each metric.

Rows that share time, commit and machine are one run. Without a time, the n-th rows of all series are one run.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from harness.export import FORMULA
from harness.model import METRICS, InputError, Revision, Scalar, Value
from harness.model.metrics import Direction
from harness.table import Table, read_table

from .base import Collector, Foreign, Group, Piece, unversioned
from .files import digest_of, finite, peek, read_file
from .fitting import case_of, fit_columns
from .gab import iso_time
from .literals import identifiers, plain
from .units import Measure, measure_of

LIMIT_BYTES = 64 << 20

_NAMES = ("benchmark", "series", "name", "case", "test")
_TIMES = ("time", "date", "timestamp", "started_at")
_COMMITS = ("commit", "revision", "sha")
_MACHINES = ("machine", "host", "runner")
#: Columns that say something of a row beside its parameters.
_ABOUT = ("unit", "better", "status", "detail", "version", "subject", "run")
_TEXTS = (*_NAMES, *_TIMES, *_COMMITS, *_MACHINES, *_ABOUT, "backend", "operation")
#: Tables of other commands, which hold no results over time.
_NOT_OURS = ({"case", "side", "value"}, {"regressed"}, {"ratio"})

_METRIC = re.compile(
    r"(?P<base>latency|(?:[a-z]+_)*(?:time|duration|runtime|elapsed|memory|mem))"
    r"_(?P<unit>s|ms|us|ns|bytes|kb|mb|gb|kib|mib|gib)"
)
_NO_NUMBER = "the value is empty or not a finite number"


def is_long_csv(path: Path) -> bool:
    """Whether the header of a file has a value or a metric, and something to tell series by."""
    if not path.is_file() or path.suffix.lower() != ".csv":
        return False
    try:
        head = peek(path).removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0][: 1 << 16].decode()
        names = [n.strip() for n in next(csv.reader(io.StringIO(head, newline="")), [])]
    except (UnicodeDecodeError, csv.Error):
        return False
    if len(names) < 2 or any(other <= set(names) for other in _NOT_OURS):
        return False
    return "value" in names or any(_column(n) is not None for n in names)


def _column(name: str) -> Measure | None:
    """The metric of a column that its name gives away."""
    if name in METRICS and METRICS[name].better != "none":
        return Measure(name)
    match = _METRIC.fullmatch(name.lower())
    if match is None:
        return None
    base, unit = match["base"], match["unit"]
    if base == "peak_memory":
        return Measure("peak_memory_bytes", measure_of(unit).factor)
    return measure_of(unit, None, "value" if base in ("latency", "time", "memory") else base)


class LongCsv(Foreign):
    """The runs of one file."""

    format: ClassVar[str] = "csv"

    def pieces(self) -> Iterator[Piece]:
        digest = digest_of(b"csv", self.path.stem.encode("utf-8", "surrogateescape"), read_file(self.path, LIMIT_BYTES))
        yield Piece(digest, lambda: list(self._read(digest)))

    def _read(self, digest: str) -> Iterator[Group]:
        table = read_table(str(self.path), text=_TEXTS)
        roles = _Roles(table)
        if not roles.metrics:
            raise InputError(f"{self.path}:1: no column 'value' and none of a metric such as latency_s or time_ms")
        if not len(table):
            self.warnings.append(f"{self.path}: no rows below the header")
        timed = roles.time is not None or roles.run is not None or roles.commit is not None
        fallback = self.path.stat().st_mtime
        for key, rows in sorted(_runs(roles, len(table), timed).items(), key=lambda r: (r[0].moment or 0, r[0].number)):
            at = key.moment if key.moment is not None else float(key.number) if roles.series and not timed else fallback
            # Without a time, a commit or a name of its own a run is known by its file and place.
            local = () if timed else (self.path.stem, key.number)
            content = repr((local, key)).encode("utf-8", "replace")
            revision = unversioned(digest_of(content), at=at)
            if key.commit is not None:
                revision = Revision(str(key.commit), str(key.commit), False, key.moment)
            machine = "" if key.machine is None else str(key.machine)
            run = self.run(
                *local, key.moment, str(key.commit), machine, str(key.run), suite="csv", revision=revision,
                machine=machine, started_at=at,
            )  # fmt: skip
            out = Collector()
            for i in rows:
                roles.take(i, at, out)
            yield out.group(run)
        if roles.bad_cells:
            self.warnings.append(f"{self.path}: {roles.bad_cells} cells of metrics hold no finite number")


class _Key(NamedTuple):
    """What the rows of a run have in common; ``number`` is the place in their series where nothing else tells."""

    moment: float | None
    commit: Scalar
    machine: Scalar
    run: Scalar
    number: int


def _runs(roles: _Roles, rows: int, timed: bool) -> dict[_Key, list[int]]:
    out: dict[_Key, list[int]] = {}
    place: Counter[Scalar] = Counter()
    for i in range(rows):
        number = 0
        if not timed and roles.series:
            name = roles.cell(roles.name, i)
            number = place[name]
            place[name] += 1
        commit, machine, run = (roles.cell(c, i) for c in (roles.commit, roles.machine, roles.run))
        out.setdefault(_Key(roles.moment(i), commit, machine, run, number), []).append(i)
    return out


class _Roles:
    """What the columns of a table mean."""

    def __init__(self, table: Table) -> None:
        self._table = table
        have = table.columns

        def first(names: Sequence[str]) -> str | None:
            return next((n for n in names if n in have), None)

        #: Cells of metrics that hold no number, in rows that hold another.
        self.bad_cells = 0
        self.name, self.time, self.commit = first(_NAMES), first(_TIMES), first(_COMMITS)
        self.machine, self.run = first(_MACHINES), "run" if "run" in have else None
        self.series = "series" in have
        self.metrics: dict[str, Measure | None] = {
            n: _column(n) for n in have if n == "value" or _column(n) is not None
        }
        ends = {f"{m}_{end}" for m in self.metrics for end in ("low", "high")}
        about = {*_ABOUT, "backend", "operation", *ends, *self.metrics}
        about |= {x for x in (self.name, self.time, self.commit, self.machine) if x}
        params = [n for n in have if n not in about]
        columns = [list(dict.fromkeys(plain(undefused(v)) for v in have[n])) for n in params]
        self._params = list(zip(params, fit_columns(identifiers(params), columns), strict=True))

    def cell(self, column: str | None, i: int) -> Scalar:
        return None if column is None else undefused(self._table.columns[column][i])

    def moment(self, i: int) -> float | None:
        """Time of a row in seconds since 1970; numbers beyond the year 5000 are taken for milliseconds."""
        if self.time is None or (text := self._table.columns[self.time][i]) is None:
            return None
        number = _float(text)
        if number is not None:
            return number / 1000 if abs(number) > 1e11 else number
        if (at := iso_time(text)) is None:
            raise self._table.fail(i, self.time, f"{text!r} is neither a number nor an ISO 8601 time")
        return at

    def take(self, i: int, at: float, out: Collector) -> None:
        """Add the numbers of row ``i``."""
        status = self._about("status", i)
        if status not in ("", "ok"):
            out.dropped[f"status {status[:40]}"] += 1
            return
        columns = self._table.columns
        params = {name: undefused(columns[n][i]) for n, name in self._params if columns[n][i] is not None}
        params = {k: plain(v) for k, v in params.items()}
        name = self.cell(self.name, i)
        case = case_of(
            str(name) if name is not None else Path(self._table.name).stem, self._about("operation", i) or "csv",
            params, self._about("backend", i) or "csv", self._about("version", i) or "1",
        )  # fmt: skip
        found = bad = 0
        for column, known in self.metrics.items():
            raw = columns[column][i]
            value = _float(raw)
            if value is None:
                bad += raw is not None
                continue
            measure = known or self._measure(i)
            low, high = (_float(columns[c][i]) if (c := f"{column}_{e}") in columns else None for e in ("low", "high"))
            ends = [None if x is None else x * measure.factor for x in (low, high)]
            out.add(case, measure.metric, Value(value * measure.factor, ends[0], ends[1]), started_at=at)
            found += 1
        if not found:
            out.dropped[_NO_NUMBER] += 1
        else:
            self.bad_cells += bad

    def _about(self, column: str, i: int) -> str:
        value = self.cell(column, i) if column in self._table.columns else None
        return "" if value is None else str(value)

    def _measure(self, i: int) -> Measure:
        """The metric of the column ``value``."""
        unit, side = self._about("unit", i), self._about("better", i)
        better: Direction | None = None
        if side == "lower":
            better = "lower"
        elif side == "higher":
            better = "higher"
        elif side:
            raise self._table.fail(i, "better", f"must be lower or higher, not {side!r}")
        if better is None and not measure_of(unit).metric.endswith("_per_s"):
            better = "lower"  # as ``detect --csv`` has it
        return measure_of(unit, better)


def undefused(cell: Scalar) -> Scalar:
    """The text that our own export made harmless for spreadsheets, as it was."""
    return cell[1:] if isinstance(cell, str) and cell[:1] == "'" and cell[1:].startswith(FORMULA) else cell


def _float(cell: Scalar) -> float | None:
    if isinstance(cell, str):
        try:
            cell = float(cell) if len(cell) < 64 else math.nan
        except ValueError:
            return None
    return finite(cell)
