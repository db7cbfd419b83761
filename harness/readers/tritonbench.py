"""tritonbench: the table of ``--output-csv`` (semicolons) and the JSON of ``--output-json`` and of its nightly runs.

Each input and backend is a case; what is measured of it are its metrics. Averages and hashes below the table are left
out, since they are made from the rows.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from harness.model import InputError, Revision, Scalar, Value
from harness.model.metrics import Direction

from .base import Collector, Foreign, Group, Piece, unversioned
from .files import Fields, digest_of, finite, holds, parse_json, peek, read_file
from .fitting import case_of
from .gab import iso_time
from .literals import identifiers, scalar_of
from .units import Measure, measure_of

_TOTALS = "average, hash or pass mark over the rows"
_EMPTY = "empty cell"
_TEXT = "not a number (an error message, a configuration)"
_ONE_FOR_ALL = "a property of the input, not of a backend"

_KEY = re.compile(r"tritonbench_(?P<op>[^\[]+)\[x_(?P<x>.*)-(?P<backend>[^\]]*)\]_(?P<metric>.+)", re.DOTALL)
_UNIQUE = re.compile(r"op_(?P<op>.+)_[A-Za-z0-9_]{8}")
_NUMBER = re.compile(r"\s*([+-]?(\d{1,20}\.?\d{0,20}|\.\d{1,20})([eE][+-]?\d{1,3})?|nan|inf)\s*(\(.*\))?\s*", re.DOTALL)
#: metric -> (unit, direction, beginning of the name here); tritonbench gives times in milliseconds.
_METRICS: dict[str, tuple[str, Direction, str]] = {
    "latency": ("ms", "lower", "value"), "gpu_latency": ("ms", "lower", "value"),
    "walltime": ("ms", "lower", "walltime"), "compile_time": ("ms", "lower", "compile_time"),
    "tflops": ("tflops", "higher", "value"), "gbps": ("gb/s", "higher", "value"),
    "cpu_peak_mem": ("gb", "lower", "cpu_peak_memory"), "gpu_peak_mem": ("gb", "lower", "gpu_peak_memory"),
    "speedup": ("", "higher", "speedup"), "accuracy": ("", "higher", "accuracy"),
}  # fmt: skip


def is_tritonbench(path: Path) -> bool:
    """Whether a file is a table or JSON of tritonbench."""
    if not path.is_file():
        return False
    if holds(path, b'"tritonbench_'):
        return True
    if path.suffix.lower() != ".csv":
        return False
    header = peek(path).partition(b"\n")[0].split(b";")
    known = [name.encode() for name in _METRICS]
    return len(header) > 1 and any(h.strip().strip(b'"').rpartition(b"-")[2] in known for h in header[1:])


class TritonBench(Foreign):
    """The run of one file."""

    format: ClassVar[str] = "tritonbench"

    def pieces(self) -> Iterator[Piece]:
        data = read_file(self.path)
        digest = digest_of(b"tritonbench", data)
        read = self._csv if self.path.suffix.lower() == ".csv" else self._json
        yield Piece(digest, lambda: [read(data, digest)])

    def _csv(self, data: bytes, digest: str) -> Group:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise InputError(f"{self.path}:{line}: not UTF-8; convert the file first") from None
        at = self.path.stat().st_mtime
        out = Collector()
        reader = csv.reader(io.StringIO(text.replace("\0", "")), delimiter=";")
        found = _UNIQUE.fullmatch(self.path.stem)
        operation = found["op"] if found else self.path.stem
        try:
            header = next(reader, [])
            for row in reader:
                if row and (row[0] in ("average", "hashes") or len(row) < 2 < len(header)):
                    out.dropped[_TOTALS] += sum(bool(c) for c in row[1:]) or 1
                    continue
                for name, cell in zip(header[1:], row[1:], strict=False):
                    backend, metric = _backend(name)
                    _take(out, operation, header[0], row[0], backend, metric, cell, at)
        except csv.Error as error:
            raise InputError(f"{self.path}:{reader.line_num}: {error}; no table of tritonbench") from None
        run = self.run(digest, suite="tritonbench", machine="", revision=unversioned(digest, at=at), started_at=at)
        return out.group(run)

    def _json(self, data: bytes, digest: str) -> Group:
        top = Fields(parse_json(data, str(self.path)), str(self.path))
        held = top.object("metrics") if isinstance(top.value.get("metrics"), dict) else top
        about: dict[str, Any] = {}
        for name in ("environ", "env"):
            if isinstance(top.value.get(name), dict):
                about |= top.value[name]
        at = _date(about) or self.path.stat().st_mtime
        out = Collector()
        for key, value in held.value.items():
            match = _KEY.fullmatch(key)
            if match is not None:
                _take(out, match["op"], "x", match["x"], match["backend"], match["metric"], value, at)
            elif key.startswith("tritonbench_"):
                out.dropped[_TOTALS if key.endswith(("-avg", "-pass")) else _ONE_FOR_ALL] += 1
        device = about.get("device")
        run = self.run(
            digest, suite="tritonbench", machine=device if isinstance(device, str) else "",
            revision=_revision(about, digest, at), started_at=at, kind="cuda",
            packages={k: v for k, v in about.items() if k.endswith(("_version", "_commit")) and isinstance(v, str)},
        )  # fmt: skip
        return out.group(run)


def _take(
    out: Collector, operation: str, x_name: str, x: str, backend: str, metric: str, cell: object, at: float
) -> None:  # fmt: skip
    if cell is None or cell == "":
        out.dropped[_EMPTY] += 1
    elif not backend:
        out.dropped[_ONE_FOR_ALL] += 1
    elif (value := _number(cell)) is None:
        out.dropped[_TEXT] += 1
    else:
        measure = _measure(metric)
        case = case_of(operation, operation, _params(x_name, x), backend)
        out.add(case, measure.metric, Value(value * measure.factor), started_at=at)


def _backend(header: str) -> tuple[str, str]:
    """``label-metric`` in two; empty for a column that belongs to no backend."""
    backend, dash, metric = header.partition("-")
    last = header.rpartition("-")
    if last[2] in _METRICS:
        return last[0], last[2]
    return (backend, metric) if dash else ("", header)


def _measure(metric: str) -> Measure:
    unit, better, name = _METRICS.get(metric, ("", "none", re.sub(r"\W+", "_", metric)[:60] or "value"))
    return measure_of(unit, better, name)


def _params(x_name: str, x: str) -> dict[str, Scalar]:
    """``(B, M)`` and ``(4, 128)`` as ``B=4 M=128``; anything else is one parameter."""
    names, values = _parts(x_name), _parts(x)
    if len(names) != len(values):
        names = [f"x{i}" for i in range(len(values))] if len(values) > 1 else ["x"]
    return dict(zip(identifiers(names), map(scalar_of, values), strict=True))


def _parts(text: str) -> list[str]:
    text = text.strip()
    if text[:1] == "(" and text[-1:] == ")" and text.count("(") == 1:
        return [p.strip() for p in text[1:-1].split(",") if p.strip()] or [text]
    return [text]


def _number(cell: object) -> float | None:
    """A number, also out of ``0.012 (±1.2%)``; bools are 0 and 1."""
    if isinstance(cell, bool):
        return float(cell)
    if isinstance(cell, str):
        match = _NUMBER.fullmatch(cell)
        return finite(float(match[1])) if match else {"True": 1.0, "False": 0.0}.get(cell)
    return finite(cell)


def _date(about: Mapping[str, Any]) -> float | None:
    for name in ("benchmark_date", "date", "timestamp"):
        text = about.get(name)
        if isinstance(text, str) and re.fullmatch(r"\d{14}", text):
            try:
                return datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
            except ValueError:
                continue
        if (at := iso_time(text)) is not None:
            return at
    return None


def _revision(about: Mapping[str, Any], digest: str, at: float) -> Revision:
    """What is under test: Triton where its commit is told, else PyTorch, else the suite itself."""
    for name in ("triton_commit", "pytorch_commit", "pytorch_git_version", "tritonbench_commit"):
        commit = about.get(name)
        if isinstance(commit, str) and re.fullmatch(r"[0-9a-fA-F]{7,64}", commit):
            return Revision(commit, commit, False, None, name.partition("_")[0])
    return unversioned(digest, at=at)
