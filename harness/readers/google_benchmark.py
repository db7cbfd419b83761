"""Google Benchmark: the JSON of ``--benchmark_format=json``. One file is one run; repetitions are samples."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from typing import ClassVar

from harness.model import Case, Scalar, Value

from .base import Collector, Group, JsonFile, unversioned
from .files import Fields, holds
from .fitting import case_of
from .gab import iso_time
from .literals import identifiers, scalar_of
from .units import measure_of

REPEATED = "repetition, kept as a sample of its case"
_AGGREGATE = "aggregate (mean, stddev, cv ...) of repetitions"
_ERROR = "the benchmark reported an error or was skipped"
_NO_TIME = "no real time"
_MODES = frozenset({"real_time", "process_time", "manual_time"})
_RUN_OPTION = re.compile(r"(min_time|min_warmup_time|repeats|iterations):")


def is_google_benchmark(path: Path) -> bool:
    """Whether a file is JSON of Google Benchmark."""
    return path.is_file() and holds(path, b'"context"', b'"benchmarks"') and not holds(path, b'"machine_info"')


class GoogleBenchmark(JsonFile):
    """The run of one file."""

    format: ClassVar[str] = "google-benchmark"

    def runs(self, top: Fields, digest: str) -> list[Group]:
        context = top.object("context")
        at = iso_time(context.value.get("date")) or self.path.stat().st_mtime
        host = context.text("host_name", "")
        cpus, mhz = context.number("num_cpus"), context.number("mhz_per_cpu")
        details: dict[str, Scalar] = {
            k: v for k, v in (("num_cpus", cpus), ("mhz_per_cpu", mhz), ("executable", context.value.get("executable")))
            if isinstance(v, str | float)
        }  # fmt: skip
        run = self.run(
            digest, suite="google-benchmark", machine=host, revision=unversioned(digest, at=at), started_at=at,
            details=details,
        )  # fmt: skip
        out = Collector()
        by_name: dict[str, list[Fields]] = {}
        for bench in top.objects("benchmarks"):
            name = bench.text("run_name", "") or bench.text("name")
            by_name.setdefault(name, []).append(bench)
        for name, rows in by_name.items():
            _take(name, rows, at, out)
        return [out.group(run)]


def _take(name: str, rows: list[Fields], at: float, out: Collector) -> None:
    single = [r for r in rows if r.value.get("run_type", "iteration") == "iteration"]
    totals = [r for r in rows if r.value.get("run_type", "iteration") != "iteration"]
    if not single:  # --benchmark_report_aggregates_only
        single = [r for r in totals if r.value.get("aggregate_name") == "median"][:1]
        out.dropped[_AGGREGATE] += len(totals) - len(single)
    else:
        out.dropped[_AGGREGATE] += len(totals)
    good = []
    for row in single:
        if row.value.get("error_occurred") is True or row.value.get("skipped"):
            out.dropped[_ERROR] += 1
        elif row.number("real_time") is None:
            out.dropped[_NO_TIME] += 1
        else:
            good.append(row)
    if not good:
        return
    out.dropped[REPEATED] += len(good) - 1
    case = _case(name, good[0])
    for key, metric, factor in _metrics(good[0]):
        samples = [v * factor for r in good if (v := r.number(key)) is not None]
        kept = samples if len(samples) > 1 else []
        out.add(case, metric, Value(median(samples), None, None, len(samples)), started_at=at, samples=kept)


def _metrics(row: Fields) -> list[tuple[str, str, float]]:
    time = measure_of(row.text("time_unit", "ns"))
    found = [("real_time", "latency_s", time.factor)]
    if row.number("cpu_time") is not None:
        found.append(("cpu_time", measure_of("s", "lower", "cpu").metric, time.factor))
    for key, unit in (("bytes_per_second", "B/s"), ("items_per_second", "items/s")):
        if row.number(key) is not None:
            found.append((key, measure_of(unit).metric, 1.0))
    return found


def _case(name: str, row: Fields) -> Case:
    """``BM_x<int>/8/n:64/threads:4`` as benchmark and parameters; how long it ran is no parameter."""
    head, *parts = _parts(name)
    names: list[str] = []
    values: list[Scalar] = []
    for part in parts:
        if part in _MODES:
            head = f"{head}/{part}"
        elif not _RUN_OPTION.match(part):
            key, colon, value = part.rpartition(":")
            names.append(key if colon and key else f"arg{len(names)}")
            values.append(scalar_of(value if colon and key else part))
    params: dict[str, Scalar] = dict(zip(identifiers(names), values, strict=True))
    threads = row.value.get("threads")
    if isinstance(threads, int) and threads > 1:
        params.setdefault("threads", threads)
    label = row.value.get("label")
    if isinstance(label, str) and label:
        params.setdefault("label", label[:200])
    return case_of(head, "google-benchmark", params, "c++")


def _parts(name: str) -> list[str]:
    """Split at slashes outside of brackets: template arguments may hold some."""
    parts, depth = [""], 0
    for char in name:
        depth += (char in "<([") - (char in ">)]")
        if char == "/" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts
