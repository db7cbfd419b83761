"""Identical kernels in two processes, compared as ``compare`` does: how often is a difference told that is none?

Small decode steps and prefills of two backends, sampled interleaved, once with one thread and once with as many as the
machine has. Printed for both: comparisons, false verdicts with a one-sided 95 % bound, the mean of head / base with its
interval (a bias of position or process would show here) and its spread over cases. The bar is the error rate that the
test promises: one family (all cases of one round) in twenty with a false verdict in it.

    python scripts/bench_interleaved.py [--rounds N] [--seconds S] [--json]

Ends 1 where more families are wrong than the promised rate makes likely (1 in 100).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from scipy import stats
from study.nights import Count

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.ab import run_ab
from harness.detection.ab import ABOptions
from harness.model import Case, MeasureOptions, VerdictKind
from harness.model.suite import grid
from harness.worker import WorkerSpec

PROMISED = 0.05
WRONG = (VerdictKind.SLOWER, VerdictKind.FASTER)
#: Variables that nothing reads make workers of their own, as another revision of the kernels would.
SIDES = (
    WorkerSpec("cpu", variables=(("OMP_DYNAMIC", "FALSE"),)),
    WorkerSpec("cpu", variables=(("OMP_NESTED", "FALSE"),)),
)


@dataclass(frozen=True)
class Row:
    threads: int
    families: int
    families_wrong: int
    comparisons: int
    false: int
    false_bound: float
    mean_ratio: float
    mean_ratio_low: float
    mean_ratio_high: float
    spread: float
    seconds: float


def cases() -> list[Case]:
    shape = {"heads_q": 4, "heads_kv": 4, "causal": True}
    steps = grid("attention", q_len=1, kv_len=[128, 449, 1024, 4096], **shape)
    prefills = grid("attention", q_len=[64, 256], kv_len=[256, 1024], **shape)
    return [Case("interleaved", w, b) for b in ("segmented", "sdpa_math") for w in [*steps, *prefills]]


def measured(threads: int, rounds: int, seconds: float) -> Row:
    """``rounds`` families of comparisons with workers that start anew in each."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    began, logs, wrong, families_wrong = time.monotonic(), [], 0, 0
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as runtime:
            os.environ.update(ATTNWATCH_RUNTIME_DIR=runtime, ATTNWATCH_WORKER_IDLE_S="1")
            base, head = SIDES if number % 2 else SIDES[::-1]
            done, _ = run_ab(cases(), base, head, MeasureOptions(max_seconds=seconds), ABOptions(fdr=PROMISED))
        results = [d.result for d in done if d.result is not None]
        false = sum(r.verdict in WRONG for r in results)
        wrong, families_wrong = wrong + false, families_wrong + bool(false)
        logs += [math.log(r.ratio) for r in results]
        print(f"{threads} threads, round {number + 1} of {rounds}: {false} false of {len(results)}", file=sys.stderr)
    bound = Count(wrong, len(logs)).high
    spread = statistics.stdev(logs)
    half = 1.96 * spread / len(logs) ** 0.5
    middle = statistics.mean(logs)
    low, mean, high = (math.exp(middle + d) for d in (-half, 0.0, half))
    return Row(
        threads, rounds, families_wrong, len(logs), wrong, bound, mean, low, high, spread, time.monotonic() - began
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="families per number of threads")
    parser.add_argument("--seconds", type=float, default=0.3, help="sampling time of one metric, as in a sweep")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = [measured(t, asked.rounds, asked.seconds) for t in sorted({1, len(os.sched_getaffinity(0))})]
    families, families_wrong = sum(r.families for r in rows), sum(r.families_wrong for r in rows)
    missed = float(stats.binom.sf(families_wrong - 1, families, PROMISED)) < 0.01
    if asked.json:
        print(json.dumps({"rows": [asdict(r) for r in rows], "missed": missed}, indent=1))
        return int(missed)
    print("threads  families wrong  comparisons  false (bound)   head / base mean          spread  seconds")
    for r in rows:
        told = f"{r.false:3} (< {r.false_bound:.3f})  "
        mean = f"{r.mean_ratio:.4f} [{r.mean_ratio_low:.4f}, {r.mean_ratio_high:.4f}]  {100 * r.spread:4.1f} %"
        wrong = f"{r.families_wrong:2} of {r.families:<8}"
        print(f"{r.threads:7}  {wrong}  {r.comparisons:11}  {told} {mean}  {r.seconds:6.0f}")
    print(f"{'MISSED' if missed else 'met'}: {families_wrong} of {families} families wrong, {PROMISED:.0%} promised")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
