"""Runs as an asv results directory (format 2), so that ``asv publish``, ``asv compare`` and our own import read them.

asv knows grids of parameters. Cases that make up most of a grid are written as one, combinations that were not
measured as NaN; others have all their parameters in one text. What asv has no place for (our names of benchmark,
metric, unit and direction) stands in ``benchmarks.json`` beside asv's own keys, so that an import gives equal rows.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from db.engine import Store
from db.export import MetricRow, metric_rows, samples_of_run
from db.imported import RULER
from db.queries import MeasurementRow, RunRow, environment_of_run, measurements_of_run, run
from harness.model import InfrastructureError, InputError, Scalar, Status, Value, content_key
from harness.model.canonical import label
from harness.readers.asv_cases import ABSENT, LABEL, narrow, widen

_COLUMNS = (
    "result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25",
    "stats_q_75", "stats_number", "stats_repeat", "samples", "profile",
)  # fmt: skip
#: metric -> (type, unit) of asv; all others are tracked.
_TYPES = {"latency_s": ("time", "seconds"), "peak_memory_bytes": ("peakmemory", "bytes"),
          "memory_bytes": ("memory", "bytes")}  # fmt: skip
#: A grid may be so many times as large as what was measured of it.
_SPARSE = 4


@dataclass
class _Cell:
    """One metric of one case in one run."""

    row: MeasurementRow
    value: Value | None
    samples: list[float] | None


@dataclass
class _Benchmark:
    """All cells of one benchmark and metric in one file, by the parameters of the case."""

    benchmark: str
    version: str
    metric: str
    cells: list[tuple[dict[str, Scalar], _Cell]] = field(default_factory=list)


class AsvExport:
    """Writes runs below ``root``, which is created and must be empty."""

    def __init__(self, store: Store, root: Path) -> None:
        self._store, self._root = store, root
        self._metrics = metric_rows(store)
        self._told: dict[str, dict[str, Any]] = {}
        self._names: dict[tuple[str, str, str], str] = {}
        self._machines: dict[str, Path] = {}
        self._tools: Counter[tuple[str, str, str]] = Counter()

    def write(self, run_ids: Sequence[str]) -> int:
        """Write the runs and ``benchmarks.json``; returns the number of values."""
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            if any(self._root.iterdir()):
                raise InputError(f"{self._root}: is not empty; name another folder, which is then created")
            count = sum(self._run(run_id) for run_id in run_ids)
            _write(self._root / "benchmarks.json", {**self._told, "version": 2}, indent=1)
        except OSError as error:
            raise InfrastructureError(f"{self._root}: cannot be written: {error.strerror}") from None
        return count

    def _run(self, run_id: str) -> int:
        found = run(self._store, run_id)
        if found is None:
            raise InputError(f"{self._store.name}: no run {run_id!r}")
        imported = found.ruler_version == f"{RULER}asv"
        axes: dict[str, str] = json.loads(str(found.options.get("axes", "{}"))) if imported else {}
        tool = str(found.options.get("tool", "")) if imported else "attnwatch"
        environment = environment_of_run(self._store, run_id)
        python = environment.python if environment and not imported else ""
        samples = samples_of_run(self._store, run_id)
        files: dict[tuple[tuple[str, str], ...], dict[tuple[str, str, str], _Benchmark]] = {}
        for m in measurements_of_run(self._store, run_id):
            if m.status != Status.OK:
                continue  # asv has one mark for all failures; ours keep apart what happened
            around = tuple((name, str(m.case.params[key])) for key, name in axes.items() if key in m.case.params)
            params = {k: v for k, v in m.case.params.items() if k not in axes}
            for ours in ("backend", "operation"):
                if (value := getattr(m.case, ours)) != "asv":
                    params[ours] = value
            held = files.setdefault(around, {})
            for metric, value in m.metrics.items():
                key = (m.case.benchmark, m.case.version, metric)
                cell = _Cell(m, value, samples.get(m.id, {}).get(metric))
                held.setdefault(key, _Benchmark(*key)).cells.append((params, cell))
        return sum(self._file(found, tool, python, dict(a), list(b.values())) for a, b in files.items())

    def _file(
        self, found: RunRow, tool: str, python: str, axes: Mapping[str, str], benchmarks: Sequence[_Benchmark]
    ) -> int:
        machine = self._machine(found)
        commit = found.commit or found.revision
        python = axes.get("python", python)
        others = [f"{k}{v}" for k, v in axes.items() if k != "python"]
        ending = "-".join([f"py{python}", *others])
        # Several runs of a commit on a machine differ in the tool, which is where asv has room for it.
        self._tools[machine.name, commit, f"{tool}-{ending}"] += 1
        number = self._tools[machine.name, commit, f"{tool}-{ending}"]
        env_name = f"{tool if number == 1 else f'{tool}.{number}'}-{ending}"
        results: dict[str, list[Any]] = {}
        for b in benchmarks:
            name, row = self._row(b, results.keys())
            results[name] = row
        at = found.committed_at if found.committed_at is not None else found.started_at
        content = {
            "commit_hash": commit, "env_name": env_name, "date": _whole(at * 1000), "python": python,
            "params": {"machine": machine.name, **({"python": python} if python else {}), **axes},
            "requirements": {k: v for k, v in axes.items() if k != "python"}, "env_vars": {},
            "result_columns": _COLUMNS, "results": results, "durations": {}, "version": 2,
            "attnwatch": {
                "machine": found.device_model, "axes": list(axes), "revision": found.revision,
                "commit": found.commit is not None, "dirty": found.dirty, "subject": found.subject,
            },
        }  # fmt: skip
        head = commit[:8] if re.fullmatch(r"[0-9a-f]{8,64}", commit) else content_key(commit)[:8]
        name = f"{head}-{_file_name(env_name)}"
        path = machine / f"{name}.json"
        if path.exists():
            path = machine / f"{name}-{content_key(found.id, env_name)[:8]}.json"
        _write(path, content)
        return sum(len(b.cells) for b in benchmarks)

    def _machine(self, found: RunRow) -> Path:
        """The folder of a machine; asv wants it to have the machine's name."""
        folder = self._machines.get(found.machine)
        if folder is None:
            folder = self._root / _file_name(found.device_model)[:80]
            if folder in self._machines.values():
                folder = folder.with_name(f"{folder.name}-{found.machine[:8]}")
            self._machines[found.machine] = folder
            folder.mkdir()
            _write(folder / "machine.json", {"machine": folder.name, "version": 1}, indent=1)
        return folder

    def _row(self, b: _Benchmark, taken: Collection[str]) -> tuple[str, list[Any]]:
        names, values, cells = _layout(b)
        name = self._name(b, names, values, taken)
        by_place = [cells.get(k) for k in itertools.product(*map(range, map(len, values)))]
        known = [c.value if c else None for c in by_place]
        ends = [_ends(v) for v in known]

        def told(key: str) -> list[Any]:
            return [c.row.telemetry.get(key) if c else None for c in by_place]

        starts = [c.row.started_at for c in by_place if c]
        duration = next((c.row.duration_s for c in by_place if c), 0.0)
        columns: list[Any] = [
            [math.nan if v is None else v.value for v in known], values, b.version, _whole(min(starts) * 1000),
            duration if len(by_place) == 1 and duration else None, [a for a, _ in ends], [z for _, z in ends],
            told("q_25"), told("q_75"), told("number"), [v.n if v else None for v in known],
            [c.samples if c else None for c in by_place],
        ]  # fmt: skip
        return name, [
            None if i > 1 and isinstance(c, list) and all(x is None for x in c) else c for i, c in enumerate(columns)
        ]

    def _name(
        self, b: _Benchmark, names: Sequence[str], values: Sequence[list[str]], taken: Collection[str]
    ) -> str:  # fmt: skip
        """The name in asv's files: one for each benchmark, metric and set of parameters, and version within a file."""
        key = (b.benchmark, b.metric, json.dumps(names))
        name = self._names.get(key)
        if name in taken:
            key = (b.benchmark, b.metric, json.dumps([*names, b.version]))
            name = self._names.get(key)
        metric = self._metrics.get(b.metric, MetricRow(b.metric, "1", "none"))
        kind, unit = _TYPES.get(b.metric, ("track", metric.unit))
        if name is None:
            name = b.benchmark
            if name in self._told:
                name = f"{b.benchmark}.{b.metric}"
            while name in self._told:
                name += "_"
            self._names[key] = name
            ours = {"benchmark": b.benchmark, "metric": b.metric, "unit": metric.unit, "better": metric.better}
            self._told[name] = {
                "attnwatch": ours, "code": "", "name": name, "param_names": list(names), "type": kind, "unit": unit,
                "pretty_name": name, "timeout": 60,
            }  # fmt: skip
        self._told[name] |= {"params": values, "version": b.version}  # those of the newest run
        return name


def _layout(b: _Benchmark) -> tuple[list[str], list[list[str]], dict[tuple[int, ...], _Cell]]:
    """(names, printed values of each parameter, cells by place): a grid where the cells fill enough of one."""
    names = list(dict.fromkeys(k for params, _ in b.cells for k in params))
    rows = [[repr(p[n]) if n in p else ABSENT for n in names] for p, _ in b.cells]
    values = [list(dict.fromkeys(column)) for column in zip(*rows, strict=True)] if names else []
    if math.prod(map(len, values)) > _SPARSE * len(b.cells) or any(p.get(n) == ABSENT for p, _ in b.cells for n in p):
        names = [LABEL]
        rows = [[repr(label(p))] for p, _ in b.cells]
        values = [list(dict.fromkeys(row[0] for row in rows))]
    places = [{text: i for i, text in enumerate(column)} for column in values]
    cells = {
        tuple(place[text] for place, text in zip(places, row, strict=True)): cell
        for row, (_, cell) in zip(rows, b.cells, strict=True)
    }
    return names, values, cells


def _ends(v: Value | None) -> tuple[float | None, float | None]:
    """The 99 % interval of asv that an import narrows to ours, to the last bit where one exists nearby."""
    if v is None or v.low is None or v.high is None or not v.low <= v.value <= v.high:
        return None, None
    low, high = widen(v.value, v.low, v.high)
    return (
        _nearby(low, lambda x: narrow(v.value, x, v.value)[0] == v.low),
        _nearby(high, lambda x: narrow(v.value, v.value, x)[1] == v.high),
    )


def _nearby(x: float, right: Any) -> float:
    short = float(f"{x:.5g}")  # asv writes five digits; where they were the source they are the answer
    below = above = x
    for candidate in (short, x):
        if right(candidate):
            return candidate
    for _ in range(8):
        below, above = math.nextafter(below, -math.inf), math.nextafter(above, math.inf)
        for candidate in (below, above):
            if right(candidate):
                return candidate
    return x


def _whole(x: float) -> int | float:
    return round(x) if abs(x - round(x)) < 1e-3 else x


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", text).strip(".")[:120] or "unnamed"


def _write(path: Path, content: object, indent: int | None = None) -> None:
    separators = (",", ":") if indent is None else None
    path.write_text(json.dumps(content, indent=indent, separators=separators), encoding="utf-8")
