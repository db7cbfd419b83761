"""What measuring a case costs beyond the kernel itself: our worker against stock asv ``time_`` benchmarks.

Both time the same functions on the same inputs, one after the other in one run on this machine. Stock asv runs at
its defaults on a benchmark file that imports torch. Cost of a case: wall time less the kernel's own runs, making its
inputs and (ours only) the oracle; fixed costs of a run, such as discovery or the worker's start, are left out on
both sides: asv is run on a few cases and on all, and the difference counts. Emptying the caches before each cold
sample is part of timing; it is shown apart, and the ratios are printed with it and without.

    python scripts/bench_overhead.py [--workloads N] [--json]

Ends 1 when a bar is missed: at most 30 ms a case; at least 20 times less than stock asv; at least 5 times more
cases per minute at the same width of the median's interval, correctness gate included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from harness.measuring.timing.adaptive import median_interval  # noqa: E402
from harness.model import Case, Measurement, MeasureOptions, Status, Workload  # noqa: E402
from harness.worker import WorkerClient, WorkerSpec  # noqa: E402

HARNESS_BAR_S = 0.030
OVERHEAD_BAR = 20.0
RATE_BAR = 5.0
BACKENDS = ("sdpa_math", "sdpa_flash", "segmented")
FEW = 2

_BENCHMARKS = """
import atexit, json, os, time
import torch
from kernels.registry import get

CASES = json.load(open(os.environ["OVERHEAD_CASES"]))


class Attention:
    params = list(range(len(CASES)))
    param_names = ["case"]

    def setup(self, index):
        start = time.perf_counter()
        p, backend = CASES[index]
        g = torch.Generator().manual_seed(0)
        shape = lambda heads, length: (p["batch"], heads, length, p["head_dim"])
        self.q = torch.randn(shape(p["heads_q"], p["q_len"]), generator=g)
        self.k = torch.randn(shape(p["heads_kv"], p["kv_len"]), generator=g)
        self.v = torch.randn(shape(p["heads_kv"], p["kv_len"]), generator=g)
        self.causal = p["causal"]
        self.inputs = time.perf_counter() - start
        self.fn = get(backend).load("attention")
        self.kernel, self.calls = 0.0, 0

    def time_call(self, index):
        start = time.perf_counter()
        self.fn(self.q, self.k, self.v, causal=self.causal)
        self.kernel += time.perf_counter() - start
        self.calls += 1

    def teardown(self, index):
        with open(os.environ["OVERHEAD_ACCOUNT"], "a") as f:
            f.write(json.dumps({"kernel_s": self.kernel, "inputs_s": self.inputs, "calls": self.calls}) + "\\n")
"""


@dataclass(frozen=True)
class Stock:
    """One ``asv run``: wall time, what of it was the kernel's and the inputs', interval half-widths per case."""

    cases: int
    wall_s: float
    own_s: float
    widths: list[float]


@dataclass(frozen=True)
class Ours:
    """Our worker on the same cases. ``harness_s`` and ``flush_s`` are per case, client included."""

    wall_s: float
    harness_s: list[float]
    flush_s: list[float]
    widths: list[float]


def cases_of(workloads: int) -> list[Case]:
    """Forward attention from decode to prefill, float32, three backends each."""
    shapes = [
        (1, 64, 64),
        (1, 128, 128),
        (2, 100, 100),
        (1, 1, 512),
        (1, 256, 256),
        (4, 1, 257),
        (1, 33, 129),
        (2, 64, 192),
    ]
    found = []
    for batch, q_len, kv_len in shapes[:workloads]:
        params: dict[str, Any] = {
            "batch": batch, "heads_q": 8, "heads_kv": 8, "q_len": q_len, "kv_len": kv_len, "head_dim": 64,
            "dtype": "float32", "causal": q_len == kv_len, "direction": "fwd",
        }  # fmt: skip
        found += [Case("overhead", Workload("attention", params), b) for b in BACKENDS]
    return found


def run_stock(cases: Sequence[Case], folder: Path) -> Stock:
    """``asv run`` at its defaults in this interpreter, on a project made in ``folder``."""
    folder.mkdir()
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "__init__.py").touch()
    (folder / "benchmarks" / "stock.py").write_text(_BENCHMARKS)
    (folder / "cases.json").write_text(json.dumps([[c.workload.params, c.backend] for c in cases]))
    configuration = {
        "version": 1,
        "project": "stock",
        "repo": ".",
        "branches": ["main"],
        "benchmark_dir": "benchmarks",
        "environment_type": "virtualenv",
    }
    (folder / "asv.conf.json").write_text(json.dumps(configuration))
    variables = {
        **os.environ,
        "OVERHEAD_CASES": str(folder / "cases.json"),
        "OVERHEAD_ACCOUNT": str(folder / "account"),
        "HOME": str(folder),
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    git = ["git", "-c", "user.name=b", "-c", "user.email=b@localhost"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "stock"]):
        subprocess.run([*git, *command], cwd=folder, env=variables, check=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, env=variables, check=True, capture_output=True, text=True
    )
    asv = [sys.executable, "-m", "asv"]
    subprocess.run([*asv, "machine", "--yes"], cwd=folder, env=variables, check=True, capture_output=True)
    command = [*asv, "run", "--python=same", "--set-commit-hash", head.stdout.strip(),
               "--record-samples"]  # fmt: skip
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=variables, check=False, capture_output=True, text=True)
    wall = time.perf_counter() - start
    account = folder / "account"
    if done.returncode or not account.exists():
        raise SystemExit(f"asv run failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    rows = [json.loads(line) for line in account.read_text().splitlines()]
    own = sum(r["kernel_s"] + r["inputs_s"] for r in rows)
    return Stock(len(cases), wall, own, _stock_widths(folder, len(cases)))


def _stock_widths(folder: Path, expected: int) -> list[float]:
    for path in (folder / "results").glob("*/*.json"):
        data = json.loads(path.read_text())
        for row in data.get("results", {}).values():
            samples = dict(zip(data["result_columns"], row, strict=False)).get("samples")
            if samples and len(samples) == expected and all(samples):
                return [_width(s) for s in samples]
    raise SystemExit("asv kept no samples for some case; its results cannot be compared")


def _width(samples: Sequence[float]) -> float:
    """Half-width of the median's 95 % interval, relative to the median."""
    ordered = sorted(samples)
    interval = median_interval(ordered)
    if interval is None:
        raise SystemExit(f"only {len(ordered)} samples: no interval")
    return (interval[1] - interval[0]) / 2 / statistics.median(ordered)


def run_ours(cases: Sequence[Case], client: WorkerClient, options: MeasureOptions) -> Ours:
    """Each case through client and worker."""
    harness, flush, widths = [], [], []
    start = time.perf_counter()
    for case in cases:
        begin = time.perf_counter()
        m = client.measure(case, options)
        wall = time.perf_counter() - begin
        if m.status is not Status.OK:
            raise SystemExit(f"{case.backend} {case.workload.label}: {m.status.value}: {m.detail}")
        flush.append(_telemetry(m, "flush_s"))
        own = sum(_telemetry(m, n) for n in ("kernel_s", "inputs_s", "oracle_s"))
        harness.append(wall - own - flush[-1])
        widths.append(_width(m.samples["latency_s"]))
    return Ours(time.perf_counter() - start, harness, flush, widths)


def _telemetry(m: Measurement, name: str) -> float:
    value = m.telemetry[name]
    assert isinstance(value, int | float)
    return float(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--workloads", type=int, default=6, help="times three backends (default 6)")
    parser.add_argument("--json", action="store_true", help="JSON alone on standard output")
    a = parser.parse_args()
    cases = cases_of(a.workloads)
    if os.getloadavg()[0] > (os.cpu_count() or 1) / 2:
        print(f"the machine is busy (load {os.getloadavg()[0]:.1f}): waiting counts as cost", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        print(f"stock asv on {FEW} and on {len(cases)} cases ...", file=sys.stderr, flush=True)
        few = run_stock(cases[:FEW], Path(name) / "few")
        stock = run_stock(cases, Path(name) / "all")
    width = statistics.median(stock.widths)
    with WorkerClient.connect(WorkerSpec("cpu")) as client:
        print("ours ...", file=sys.stderr, flush=True)
        full = run_ours(cases, client, MeasureOptions())
        # The same question as asv's: latency alone, to the same width, with as much time as it takes.
        same = replace(MeasureOptions(), rel_width=width, hot=False, memory=False, max_seconds=10.0)
        fast = run_ours(cases, client, same)
    n = stock.cases - few.cases
    stock_cost = ((stock.wall_s - stock.own_s) - (few.wall_s - few.own_s)) / n
    stock_rate = 60.0 * n / (stock.wall_s - few.wall_s)
    our_cost, our_flush = statistics.median(full.harness_s), statistics.median(full.flush_s)
    our_rate = 60.0 * len(cases) / fast.wall_s
    faster = our_rate / stock_rate
    rows = [
        ("harness cost per case, median", f"{our_cost * 1e3:.1f} ms", "<= 30 ms", our_cost <= HARNESS_BAR_S),
        ("harness cost per case, worst", f"{max(full.harness_s) * 1e3:.1f} ms", "", None),
        ("emptying caches per case, median", f"{our_flush * 1e3:.1f} ms", "", None),
        ("stock asv: cost per case", f"{stock_cost * 1e3:.1f} ms", "", None),
        ("stock asv / ours", f"{stock_cost / our_cost:.1f} x", ">= 20 x", stock_cost / our_cost >= OVERHEAD_BAR),
        ("stock asv / ours with emptying caches", f"{stock_cost / (our_cost + our_flush):.1f} x", "", None),
        ("interval half-width, stock asv (median)", f"{width * 100:.2f} %", "", None),
        ("interval half-width, ours (median)", f"{statistics.median(fast.widths) * 100:.2f} %", "", None),
        ("cases per minute, stock asv", f"{stock_rate:.0f}", "", None),
        ("cases per minute, ours", f"{our_rate:.0f}", "", None),
        ("cases per minute, ours / stock asv", f"{faster:.1f} x", ">= 5 x", faster >= RATE_BAR),
    ]  # fmt: skip
    if a.json:
        print(
            json.dumps(
                {"rows": rows, "stock": asdict(stock), "few": asdict(few), "full": asdict(full), "fast": asdict(fast)}
            )
        )
    else:
        for text, value, bar, good in rows:
            print(f"{text:<42}{value:>12}  {bar:<9}{'' if good is None else 'ok' if good else 'MISSED'}".rstrip())
    return int(any(good is False for *_, good in rows))


if __name__ == "__main__":
    sys.exit(main())
