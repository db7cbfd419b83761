"""pytest-benchmark: the JSON of ``--benchmark-json`` and of ``--benchmark-save``. One file is one run."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from harness.model import Revision, Scalar, Value

from .base import Collector, Group, JsonFile
from .files import Fields, finite, holds
from .fitting import case_of
from .gab import iso_time
from .literals import identifiers, plain

_NO_TIME = "no median time among the statistics"


def is_pytest_benchmark(path: Path) -> bool:
    """Whether a file is JSON of pytest-benchmark."""
    return path.is_file() and holds(path, b'"machine_info"', b'"benchmarks"')


class PytestBenchmark(JsonFile):
    """The run of one file. The value of a case is its median; rounds are its samples where the file has them."""

    format: ClassVar[str] = "pytest-benchmark"

    def runs(self, top: Fields, digest: str) -> list[Group]:
        commit, machine = top.object("commit_info"), top.object("machine_info")
        at = iso_time(top.value.get("datetime"))
        if at is None:
            raise top.fail("datetime", "must be an ISO 8601 time")
        out = Collector()
        for bench in top.objects("benchmarks"):
            self._case(bench, at, out)
        python = machine.text("python_version", "")
        run = self.run(
            digest, suite="pytest-benchmark", machine=_model(machine), revision=_revision(commit, digest, at),
            started_at=at, python=python, details=_details(machine),
        )  # fmt: skip
        return [out.group(run)]

    def _case(self, bench: Fields, at: float, out: Collector) -> None:
        stats = bench.object("stats")
        median = stats.number("median")
        if median is None:
            out.dropped[_NO_TIME] += 1
            return
        name = bench.text("fullname", "") or bench.text("name")
        params: dict[str, Scalar] = {}
        if isinstance(held := bench.value.get("params"), dict) and held:
            params = dict(zip(identifiers(held), map(plain, held.values()), strict=True))
            # The values stand as parameters; in the name they would hide that cases belong together.
            param = bench.value.get("param")
            name = name.removesuffix(f"[{param}]") if isinstance(param, str) else name.partition("[")[0]
        samples = [x for v in stats.sequence("data") if (x := finite(v)) is not None]
        rounds = stats.number("rounds")
        n = int(rounds) if rounds is not None and 1 <= rounds < 2**31 else max(len(samples), 1)
        told: dict[str, Scalar] = {
            k: v for k in ("min", "max", "mean", "stddev", "iqr", "iterations") if (v := stats.number(k)) is not None
        }
        case = case_of(name, bench.text("group", "") or "pytest", params, "pytest")
        out.add(case, "latency_s", Value(median, None, None, n), started_at=at, samples=samples, telemetry=told)


def _revision(commit: Fields, digest: str, at: float) -> Revision:
    name = commit.value.get("id")
    if not isinstance(name, str) or not name or name.startswith("unversioned"):
        return Revision(f"unversioned.{digest[:12]}", None, False, at)
    dirty = commit.value.get("dirty") is True
    made = iso_time(commit.value.get("time"))
    return Revision(f"{name}+dirty.{digest[:12]}" if dirty else name, name, dirty, made)


def _model(machine: Fields) -> str:
    cpu = machine.value.get("cpu")
    found = [cpu.get(k) for k in ("brand_raw", "brand")] if isinstance(cpu, dict) else []
    found += [machine.value.get(k) for k in ("processor", "machine", "node")]
    return next((x for x in found if isinstance(x, str) and x), "")


def _details(machine: Fields) -> dict[str, Scalar]:
    keys = ("node", "system", "release", "machine", "python_implementation")
    return {k: v for k in keys if isinstance(v := machine.value.get(k), str)}
