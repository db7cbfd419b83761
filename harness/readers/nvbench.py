"""nvbench: the JSON of ``--json``. One file is one run for each device; each state is a case."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from harness.model import Scalar, Value

from .base import Collector, Group, JsonFile, unversioned
from .files import Fields, finite, holds
from .fitting import case_of
from .literals import identifiers, plain
from .units import measure_of

_SKIPPED = "the state was skipped"
_NO_TIME = "no GPU, CPU or batch time among the summaries"

#: What stands for the latency of a state, the best kind first.
_TIMES = (
    "nv/cold/time/gpu/median", "nv/cold/time/gpu/mean", "nv/batch/time/gpu/mean",
    "nv/cpu_only/time/cpu/mean", "nv/cold/time/cpu/mean",
)  # fmt: skip
_TOLD = ("nv/cold/time/gpu/stdev/relative", "nv/cold/time/gpu/mean")
#: tag -> (unit, beginning of the metric's name)
_OTHERS = {
    "nv/batch/time/gpu/mean": ("s", "batch"),
    "nv/cold/time/cpu/mean": ("s", "cpu"),
    "nv/cold/bw/global/bytes_per_second": ("B/s", "value"),
    "nv/cold/bw/item_rate": ("items/s", "value"),
}


def is_nvbench(path: Path) -> bool:
    """Whether a file is JSON of nvbench."""
    return path.is_file() and holds(path, b'"devices"', b'"benchmarks"', b'"states"')


class NvBench(JsonFile):
    """The runs of one file."""

    format: ClassVar[str] = "nvbench"

    def runs(self, top: Fields, digest: str) -> list[Group]:
        at = self.path.stat().st_mtime
        devices = {str(d.value.get("id")): d for d in top.objects("devices")}
        by_device: dict[str, Collector] = {}
        for bench in top.objects("benchmarks"):
            for state in bench.objects("states"):
                out = by_device.setdefault(str(state.value.get("device")), Collector())
                _take(bench.text("name"), state, at, out)
        groups = []
        for name, out in by_device.items():
            device = devices.get(name)
            model = device.text("name", "") if device else ""
            details = {k: v for k, v in device.value.items() if isinstance(v, int | float)} if device else {}
            run = self.run(
                digest, name, suite="nvbench", machine=model, revision=unversioned(digest, at=at), started_at=at,
                details={k: plain(v) for k, v in details.items()}, kind="cuda", options=_version(top),
            )  # fmt: skip
            groups.append(out.group(run))
        return groups


def _take(benchmark: str, state: Fields, at: float, out: Collector) -> None:
    if state.value.get("is_skipped") is True:
        out.dropped[_SKIPPED] += 1
        return
    summaries = _summaries(state)
    lead = next((tag for tag in _TIMES if tag in summaries), None)
    if lead is None:
        out.dropped[_NO_TIME] += 1
        return
    axes = state.objects("axis_values")
    names = identifiers(a.text("name").replace("{ct}", "").replace("{io}", "") for a in axes)
    params: dict[str, Scalar] = {}
    for name, axis in zip(names, axes, strict=True):
        value = _typed(axis)
        params[name] = value if isinstance(value, str | int | float) else plain(axis.value.get("value"))
    case = case_of(benchmark, "nvbench", params, "cuda")
    size = summaries.get("nv/cold/sample_size")
    n = int(size) if size is not None and 1 <= size < 2**31 else 1
    told: dict[str, Scalar] = {
        k: v
        for k in ("nv/cold/time/gpu/stdev/relative", "nv/cold/time/gpu/mean")
        if (v := summaries.get(k)) is not None
    }
    out.add(case, "latency_s", Value(summaries[lead], None, None, n), started_at=at, telemetry=told)
    for tag, (unit, name) in _OTHERS.items():
        if tag != lead and tag in summaries:
            out.add(case, measure_of(unit, None, name).metric, Value(summaries[tag]), started_at=at)


def _summaries(state: Fields) -> dict[str, float]:
    """Tag -> number of the summaries that are one."""
    found: dict[str, float] = {}
    for summary in state.objects("summaries"):
        for item in summary.objects("data"):
            value = finite(_typed(item))
            if item.value.get("name") == "value" and value is not None:
                found[summary.text("tag", "")] = value
    return found


def _typed(item: Fields) -> object:
    """nvbench writes numbers as text beside their type."""
    kind, value = item.value.get("type"), item.value.get("value")
    if isinstance(value, str) and kind in ("int64", "float64"):
        try:
            return int(value) if kind == "int64" else float(value)
        except ValueError:
            return value
    return value


def _version(top: Fields) -> dict[str, Scalar]:
    found = top.object("meta").object("version").object("nvbench").value.get("string")
    return {"nvbench": found} if isinstance(found, str) else {}
