"""Is ingesting within three times of raw ``sqlite3.executemany``, and flat in memory? Exits 1 where it is not.

Generates seeded bundles of 10,000 and 100,000 measurements (six metric values, twenty samples each), ingests each in a
process of its own, and writes the rows that came out with the driver alone into a database of the same schema,
in one transaction and with the same pragmas. Times are the best of the repeats, taken in turn in one run. The bar holds
for processor time, which neighbours on the machine change least; time by the clock is shown beside it.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from db.engine import open_store
from harness.bundle import BundleWriter
from harness.ingest import ingest_bundle
from harness.model import (
    Case,
    Environment,
    Machine,
    Measurement,
    Revision,
    Run,
    RunEnd,
    Scalar,
    Status,
    Value,
    Workload,
)

MAX_RATIO = 3.0
#: Peak memory for ten times the measurements may be this many times larger.
MAX_GROWTH = 1.25
CASES_A_RUN = 10_000
TABLES = ("machine", "environment", "revision", "run", "case", "metric", "measurement", "metric_value", "control_value")


def write_bundle(path: Path, measurements: int, seed: int) -> None:
    """A bundle of runs of up to 10,000 cases each."""
    rng = random.Random(seed)
    machine = Machine("cpu", "Bench CPU", host="bench")
    with BundleWriter(path) as out:
        for start in range(0, measurements, CASES_A_RUN):
            count = min(CASES_A_RUN, measurements - start)
            number = start // CASES_A_RUN
            run = Run(
                f"bench-{seed}-{number}",
                "nightly",
                Revision(f"{number:040x}", commit=f"{number:040x}", committed_at=float(number)),
                Environment(machine, python="3.11.9", packages={"torch": "2.13.0"}, kernels_hash=f"{number:016x}"),
                started_at=1.7e9 + 86400.0 * number,
                planned=count,
            )
            out.run(run)
            for i in range(count):
                out.measurement(run.id, _measurement(rng, i, run.started_at + i))
            out.end(RunEnd(run.id, run.started_at + count, True, count))


def _measurement(rng: random.Random, i: int, at: float) -> Measurement:
    params: dict[str, Scalar] = {
        "batch": 1 + i % 8,
        "heads_q": 8,
        "heads_kv": 8,
        "q_len": 128 + i,
        "kv_len": 128 + i,
        "head_dim": (64, 80, 96, 128)[i % 4],
        "dtype": "float16",
        "causal": i % 2 == 0,
        "direction": "fwd",
    }
    samples = sorted(1e-3 * rng.lognormvariate(0.0, 0.05) for _ in range(20))
    rng.shuffle(samples)
    middle = sorted(samples)[10]
    memory = 4096.0 * (i + 1)
    return Measurement(
        Case("prefill", Workload("attention", params), ("sdpa_math", "sdpa_flash")[i % 2]),
        Status.OK,
        at,
        duration_s=0.5,
        metrics={
            "latency_s": Value(middle, middle * 0.98, middle * 1.02, 20),
            "flops_per_s": Value(1e9 / middle),
            "tokens_per_s": Value(512 / middle),
            "bytes_per_s": Value(1e6 / middle),
            "peak_memory_bytes": Value(memory),
            "operator_calls": Value(12.0),
        },
        samples={"latency_s": samples},
        stop_reason="width",
        operators=["aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention_for_cpu"],
        telemetry={"load_1m": 0.5, "clock_hz": 3.0e9},
    )


def ingest_in_child(bundle: Path, database: Path) -> dict[str, float]:
    """Seconds and peak memory (bytes) of one ingest in a fresh process."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", str(bundle), str(database)], check=True, stdout=subprocess.PIPE
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def child(bundle: str, database: str) -> None:
    """What :func:`ingest_in_child` starts."""
    with open_store(database) as store:
        start = now()
        report = ingest_bundle(store, bundle)
        seconds, wall = now() - start
    # ru_maxrss is inherited from the parent; VmHWM starts with this program.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"seconds": seconds, "wall": wall, "peak": int(peak.split()[1]) * 1024, "taken": report.taken}))


def now() -> NDArray[np.float64]:
    """Processor time and time by the clock, seconds."""
    return np.array([time.process_time(), time.perf_counter()])


def raw_insert(source: Path, target: Path) -> NDArray[np.float64]:
    """Seconds (processor, clock) that the driver takes for the rows of ``source`` in a database of the same schema."""
    with sqlite3.connect(source) as connection:
        rows = {t: connection.execute(f'SELECT * FROM "{t}"').fetchall() for t in TABLES}
    open_store(target).close()
    connection = sqlite3.connect(target, isolation_level=None)
    connection.executescript("PRAGMA foreign_keys=ON; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-8192")
    start = now()
    connection.execute("BEGIN IMMEDIATE")
    for table, values in rows.items():
        if values:
            places = ",".join("?" * len(values[0]))
            connection.executemany(f'INSERT INTO "{table}" VALUES ({places})', values)
    connection.execute("COMMIT")
    seconds = now() - start
    connection.close()
    return seconds


def main() -> int:
    """Run the benchmark; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measurements", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return 0
    print(f"{'':>22} {'processor s':>22} {'clock s':>22}")
    print(f"{'measurements':>12} {'bundle MB':>9}" + f" {'ingest':>8} {'raw':>6} {'ratio':>6}" * 2 + f" {'peak MB':>8}")
    peaks: list[float] = []
    ratio = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for count in (args.measurements // 10, args.measurements):
            bundle = Path(folder) / f"{count}.jsonl"
            write_bundle(bundle, count, args.seed)
            ingests, raws, repeat_peaks = [], [], []
            for i in range(args.repeats):
                database, raw = Path(folder) / f"{count}-{i}.db", Path(folder) / f"{count}-{i}-raw.db"
                answer = ingest_in_child(bundle, database)
                if answer["taken"] != count:
                    raise SystemExit(f"{answer['taken']} measurements taken where {count} were written")
                ingests.append([answer["seconds"], answer["wall"]])
                repeat_peaks.append(answer["peak"])
                raws.append(raw_insert(database, raw))
                database.unlink()
                raw.unlink()
            ours, raw_best = np.min(ingests, axis=0), np.min(raws, axis=0)
            ratio = float(ours[0] / raw_best[0])
            peaks.append(max(repeat_peaks))
            columns = "".join(f" {a:>8.2f} {b:>6.2f} {a / b:>6.2f}" for a, b in zip(ours, raw_best, strict=True))
            print(f"{count:>12} {bundle.stat().st_size / 1e6:>9.1f}{columns} {peaks[-1] / 1e6:>8.1f}")
    growth = peaks[1] / peaks[0]
    good = ratio <= MAX_RATIO and growth <= MAX_GROWTH
    print(
        f"ratio to raw executemany {ratio:.2f} (bar {MAX_RATIO}), peak memory x{growth:.2f} for ten times the "
        f"measurements (bar {MAX_GROWTH}): {'met' if good else 'MISSED'}"
    )
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
