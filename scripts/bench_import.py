"""Does a directory of 1,000 asv files (1 M values) import in 60 s and 500 MB, and again in 5 s? Exits 1 where not.

Generates a seeded results directory (format 2, statistics as asv rounds them, no samples), imports it into a fresh
SQLite store in a process of its own and judges the history, as ``attnwatch ingest`` does, and does both again in
another. The bars hold for processor time (one thread; neighbours on the machine change it least), the start of Python
included; time by the clock is shown beside it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MOST_S, MOST_AGAIN_S, MOST_BYTES = 60.0, 5.0, 500e6
COLUMNS = (
    "result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25",
    "stats_q_75", "stats_number", "stats_repeat", "samples", "profile",
)  # fmt: skip
SIZES = ["1", "10", "100", "1000", "10000"]
KINDS = ["'float32'", "'float64'"]
COMBINATIONS = len(SIZES) * len(KINDS)


def write_directory(root: Path, files: int, benchmarks: int, seed: int = 1) -> Path:
    """A results directory of one machine: ``files`` commits of ``benchmarks`` x 10 values, one in 50 missing."""
    rng = random.Random(seed)
    names = [f"suite_{i // 20}.Bench{i % 20}.time_{i}" for i in range(benchmarks)]
    machine = root / "runner"
    machine.mkdir(parents=True)
    (machine / "machine.json").write_text(json.dumps({"machine": "runner", "cpu": "Some CPU", "version": 1}))
    told = {
        n: {"name": n, "params": [SIZES, KINDS], "param_names": ["size", "dtype"], "type": "time", "unit": "seconds",
            "version": f"{i:064x}"} for i, n in enumerate(names)
    }  # fmt: skip
    (root / "benchmarks.json").write_text(json.dumps({**told, "version": 2}))
    for k in range(files):
        commit = f"{rng.getrandbits(160):040x}"
        at = 1_600_000_000_000 + k * 3_600_000
        results = {
            n: _row(rng, 1e-6 * (1 + i), f"{i:064x}", at + i * 1000) for i, n in enumerate(names)
        }  # fmt: skip
        content = {
            "commit_hash": commit, "env_name": "virtualenv-py3.11", "date": at, "python": "3.11", "requirements": {},
            "params": {"machine": "runner", "python": "3.11", "cpu": "Some CPU"}, "env_vars": {},
            "result_columns": COLUMNS, "results": results, "durations": {}, "version": 2,
        }  # fmt: skip
        (machine / f"{commit[:8]}-virtualenv-py3.11.json").write_text(json.dumps(content, separators=(",", ":")))
    return root


def _row(rng: random.Random, level: float, version: str, at: int) -> list[object]:
    values: list[float | None] = [level * (1 + j) * rng.lognormvariate(0, 0.02) for j in range(COMBINATIONS)]
    if rng.random() < 0.2:
        values[rng.randrange(COMBINATIONS)] = None

    def stat(factor: float) -> list[float | None]:
        return [None if v is None else float(f"{v * factor:.5g}") for v in values]

    whole = [None if v is None else 10 for v in values]
    return [
        values, [SIZES, KINDS], version, at, 1.25, stat(0.98), stat(1.03), stat(0.99), stat(1.01), whole, whole
    ]  # fmt: skip


def import_in_child(root: Path, store: Path) -> dict[str, float]:
    """Seconds, peak memory (bytes) and counts of one import in a fresh process."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--child", str(root), str(store)], check=True, stdout=subprocess.PIPE
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return {**answer, "seconds": time.perf_counter() - start}


def child(root: str, store: str) -> None:
    """What :func:`import_in_child` starts: all that ``attnwatch ingest`` does, judging included."""
    from db.engine import open_store
    from harness.imports import import_paths, judge_new

    with open_store(store) as opened:
        report = import_paths(opened, [Path(root)])
        judge_new(opened)
    # ru_maxrss is inherited from the parent; VmHWM starts with this program.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    counts = {k: report[k] for k in ("taken", "duplicates", "dropped")}
    print(json.dumps({**counts, "processor": time.process_time(), "peak": int(peak.split()[1]) * 1024}))


def main() -> int:
    """Run the benchmark; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--benchmarks", type=int, default=100)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        root, store = write_directory(Path(folder) / "results", args.files, args.benchmarks), Path(folder) / "s.db"
        size = sum(p.stat().st_size for p in root.rglob("*.json"))
        first, again = import_in_child(root, store), import_in_child(root, store)
        held = store.stat().st_size
    rows = args.files * args.benchmarks * COMBINATIONS
    print(f"{args.files} files, {size / 1e6:.0f} MB, {rows:,} values; store {held / 1e6:.0f} MB")
    print(f"{'':<8}{'processor s':>12}{'clock s':>9}{'peak MB':>9}{'taken':>11}{'there':>11}{'dropped':>9}")
    for name, r in (("import", first), ("again", again)):
        print(
            f"{name:<8}{r['processor']:>12.1f}{r['seconds']:>9.1f}{r['peak'] / 1e6:>9.0f}"
            f"{r['taken']:>11,.0f}{r['duplicates']:>11,.0f}"
            f"{r['dropped']:>9,.0f}"
        )
    counted = first["taken"] + first["dropped"] == rows == again["duplicates"] + again["dropped"]
    scale = rows / 1e6
    good = (
        counted
        and first["processor"] <= MOST_S * max(scale, 0.1)
        and again["processor"] <= MOST_AGAIN_S
        and max(first["peak"], again["peak"]) <= MOST_BYTES
        and again["taken"] == 0
    )
    print(
        f"bars {MOST_S:.0f} s for a million values, {MOST_AGAIN_S:.0f} s again, {MOST_BYTES / 1e6:.0f} MB, every row "
        f"accounted for: {'met' if good else 'MISSED'}"
    )
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
