"""Live A/A: real kernels measured on this machine, twice the same, judged by the code that judges nights."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from db.engine import open_store
from db.queries import latest_run, runs
from harness.ab import run_ab
from harness.detection.ab import ABOptions
from harness.ingest import ingest_bundle
from harness.judge.suspects import judge_run
from harness.model import Case, MeasureOptions, Scalar, VerdictKind, Workload
from harness.model.workloads import FILE_SUFFIX, write_suite
from harness.worker import WorkerSpec

from .nights import Count

_BACKENDS = ("sdpa_math", "segmented")
_SAMPLING_S = 0.3


@dataclass(frozen=True)
class Live:
    """``compared`` series of two runs, ``suspects`` raised among them, ``kept`` of those after interleaving;
    ``verdicts``: slower or faster among all interleaved comparisons of a kernel with itself."""

    compared: int
    suspects: int
    kept: int
    verdicts: Count
    pairs: float
    seconds: float


def live(budget_s: float = 60.0) -> Live:
    """Two runs of a small suite on the CPU, then base against an identical head in workers of their own."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, open_store(Path(name) / "aa.db") as store:
        folder = Path(name)
        path = folder / f"aa{FILE_SUFFIX}"
        write_suite(path, _workloads(), "aa")
        for number in range(2):
            out = folder / f"run{number}.jsonl"
            _measure(path, out)
            ingest_bundle(store, out)
        head = latest_run(store, runs(store)[0].machine)
        assert head is not None
        judged = judge_run(store, head.machine, head.id)
        raised = [f.case for f in judged.findings if f.kind == "slower"]
        cases = list(judged.tested.get("latency_s", {}).values())
        kept, verdicts, took = _interleaved(raised, cases, began + budget_s)
    return Live(judged.compared, len(raised), kept, verdicts, float(np.median(took or [0])), time.monotonic() - began)


def _interleaved(raised: list[Case], cases: list[Case], until: float) -> tuple[int, Count, list[int]]:
    """Suspects first, then all cases again and again until time is up: (suspects kept, false verdicts, pairs)."""
    base = WorkerSpec("cpu")
    # A variable that nothing reads makes a worker of its own, as another revision of the kernels would be.
    head = WorkerSpec("cpu", variables=(("ATTNWATCH_SAME_AGAIN", "1"),))
    kept, verdicts, took = 0, Count(0, 0), []
    rounds = [raised] if raised else []
    while True:
        group = rounds.pop() if rounds else cases
        deadline = time.time() + max(until - time.monotonic(), 0.0)
        done, left = run_ab(group, base, head, MeasureOptions(max_seconds=_SAMPLING_S), ABOptions(), deadline=deadline)
        told = [d.result for d in done if d.result is not None]
        if group is raised:
            kept = sum(r.verdict is VerdictKind.SLOWER for r in told)
        wrong = sum(r.verdict in (VerdictKind.SLOWER, VerdictKind.FASTER) for r in told)
        verdicts += Count(wrong, len(told))
        took += [r.n_head for r in told]
        if left or time.monotonic() >= until or not done:
            return kept, verdicts, took


def _workloads() -> list[Workload]:
    shape: dict[str, Scalar] = {
        "batch": 1,
        "heads_q": 4,
        "heads_kv": 4,
        "head_dim": 32,
        "dtype": "float32",
        "direction": "fwd",
    }
    return [
        Workload("attention", {**shape, "q_len": q, "kv_len": kv, "causal": False})
        for q in (1, 32)
        for kv in (64, 96, 128, 192, 256, 384)
    ]


def _measure(suite: Path, out: Path) -> None:
    command = [sys.executable, "-m", "harness.measure", "--suite", str(suite), "--device", "cpu", "--out", str(out)]
    command += [f"--backend={b}" for b in _BACKENDS]
    command += ["--quick", f"--max-seconds={_SAMPLING_S}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
