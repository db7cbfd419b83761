"""Every bar of trigger explanation in one table: exact recovery, silence, truth beyond the sweep, time, memory, rivals.

Exact means the same truth on the whole grid of about a million points, tested or not. Two suites of predicates on
different grids: *developed* was looked at while the method was tuned, *held out* was only ever run. Exit code 1 where
a bar is missed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from study.grids import GRIDS, draw, same_on_grid
from study.predicates import DEVELOPED, HELD_OUT
from study.trials import Outcome, recover, silent

Suite = list[tuple[str, str]]

RECOVERY = (
    ("clean labels", "clean", 0.98), ("5 % flipped", "flip5", 0.95), ("20 % flipped", "flip20", 0.88),
    ("200 rows, 5 % flipped", "few", 0.92), ("+10 %, 2 % noise, Gaussian", "gauss10", 0.95),
    ("+10 %, 2 % noise, t3", "t10", 0.95), ("+4 %, 2 % noise, Gaussian", "gauss4", 0.90),
    ("+4 %, 2 % noise, t3", "t4", 0.90), ("beyond the sweep, 12 measured", "offgrid", 0.85),
)  # fmt: skip
SILENCE = ("labels5", "labels30", "labels50", "gauss", "t3", "understated", "shift", "uneven", "spikes")
SILENT_BAR = 0.99
TIMES = ((1000, "regressed", 3.0), (1000, "ratio", 3.0), (20_000, "regressed", 6.0), (20_000, "ratio", 6.0))
MEMORY_MB = 1024.0
RIVALS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "attnwatch" / "explain-rivals"


@dataclass
class Line:
    """One row of the table; ``met`` is None where there is no bar."""

    what: str
    developed: str
    held_out: str
    bar: str = ""
    met: bool | None = None


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="every sixth predicate, few silent tables, no rivals")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other tables and noise")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tables", type=int, help="silent tables a kind (100; quick 8)")
    parser.add_argument("--every", type=int, help="every so many predicates (1; quick 6)")
    parser.add_argument("--only", help="kinds to run, by comma: those of recovery and silence, time, rivals")
    parser.add_argument("--misses", action="store_true", help="tell what was said instead, on standard error")
    args = parser.parse_args()
    step = args.every or (6 if args.quick else 1)
    tables = args.tables or (8 if args.quick else 100)
    wanted = set(args.only.split(",")) if args.only else None

    def want(kind: str) -> bool:
        return wanted is None or kind in wanted

    lines: list[Line] = []
    began = time.perf_counter()
    with ProcessPoolExecutor(args.jobs) as workers:
        for title, kind, bar in RECOVERY:
            if want(kind):
                lines.append(_recovery(workers.map, title, kind, bar, step, args.seed, args.misses))
                _show(lines[-1])
        for kind in SILENCE:
            if want(kind):
                lines.append(_silence(workers.map, kind, tables, args.seed, args.misses))
                _show(lines[-1])
    if want("time"):
        for line in _times():
            lines.append(line)
            _show(line)
    if want("rivals") and not (args.quick and wanted is None):
        for line in _rivals(step, args.seed):
            lines.append(line)
            _show(line)
    took = time.perf_counter() - began
    versions = f"python {platform.python_version()}, numpy {np.__version__}"
    print(f"{len(DEVELOPED)} developed and {len(HELD_OUT)} held out predicates; {versions}; {took:.0f} s")
    return int(any(line.met is False for line in lines))


def _show(line: Line) -> None:
    if not _shown:
        print(f"{'':<34}{'developed':>16}{'held out':>16}{'bar':>10}")
    _shown.append(line)
    verdict = {True: "", False: "  missed", None: ""}[line.met]
    print(f"{line.what:<34}{line.developed:>16}{line.held_out:>16}{line.bar:>10}{verdict}", flush=True)


_shown: list[Line] = []


def _recovery(
    run: Callable[..., Iterable[Outcome]], title: str, kind: str, bar: float, step: int, seed: int, misses: bool
) -> Line:
    shares, texts = [], []
    measured: list[float] = []
    for offset, suite in ((0, DEVELOPED), (500, HELD_OUT)):
        chosen = suite[::step]
        seeds = [100_000 * (seed + 1) + 1000 * offset + i for i in range(len(chosen))]
        outcomes = list(run(recover, [g for g, _ in chosen], [p for _, p in chosen], [kind] * len(chosen), seeds))
        counted = [o for o in outcomes if o.right is not None]
        right = sum(bool(o.right) for o in counted)
        shares.append(right / max(1, len(counted)))
        texts.append(f"{right}/{len(counted)} {shares[-1]:.1%}")
        measured += [o.extra for o in counted]
        if misses:
            for (_, predicate), o in zip(chosen, outcomes, strict=True):
                if o.right is False:
                    print(f"  {kind}: {predicate}\n      said {o.said}", file=sys.stderr)
    if kind == "offgrid":
        title += f" ({np.mean(measured):.1f} on average)"
    return Line(title, *texts, f">= {bar:.0%}", min(shares) >= bar)


def _silence(run: Callable[..., Iterable[Outcome]], kind: str, tables: int, seed: int, misses: bool) -> Line:
    names = [list(GRIDS)[i % len(GRIDS)] for i in range(tables)]
    seeds = [7_000_000 + 10_000 * seed + i for i in range(tables)]
    outcomes = list(run(silent, names, [kind] * tables, seeds))
    quiet = sum(bool(o.right) for o in outcomes)
    if misses:
        for o in outcomes:
            if not o.right:
                print(f"  {kind}: said {o.said} ({o.extra:.1f} nats)", file=sys.stderr)
    share = quiet / tables
    return Line(f"silent: {kind}", f"{quiet}/{tables} {share:.1%}", "", f">= {SILENT_BAR:.0%}", share >= SILENT_BAR)


def _times() -> list[Line]:
    """The command, start-up included, on a table in a file."""
    out = []
    with tempfile.TemporaryDirectory(prefix="attnwatch-bench-") as folder:
        for n, column, bar in TIMES:
            path = Path(folder) / f"{column}_{n}.csv"
            _write(path, n, column)
            command = [sys.executable, "-m", "harness.cli", "explain", "--json", "--csv", str(path)]
            runs = []
            for _ in range(3):
                began = time.perf_counter()
                pid = os.posix_spawn(
                    command[0], command, os.environ,
                    file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
                )  # fmt: skip
                _, status, usage = os.wait4(pid, 0)
                runs.append((time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024))
                if status:
                    raise SystemExit(f"{' '.join(command)} ended with status {status}")
            wall, cpu, memory = (sorted(r[i] for r in runs)[1] for i in range(3))
            what = f"{n:,} x 10 {column}: s (cpu), MB"
            met = wall <= bar and memory <= MEMORY_MB
            out.append(Line(what, f"{wall:.2f} ({cpu:.2f})", f"{memory:.0f} MB", f"{bar:.0f} s, 1 GB", met))
    return out


def _write(path: Path, n: int, column: str) -> None:
    rng = np.random.default_rng(n)
    grid, predicate = DEVELOPED[0]
    table = draw(GRIDS[grid], predicate, n, rng)
    if column == "ratio":
        values = np.exp(0.02 * rng.standard_normal(n) + np.log(1.1) * table.truth).tolist()
    else:
        values = (table.truth ^ (rng.random(n) < 0.05)).astype(int).tolist()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*table.rows[0], column])
        writer.writerows([*row.values(), value] for row, value in zip(table.rows, values, strict=True))


def _rivals(step: int, seed: int) -> list[Line]:
    python = _rival_python()
    if python is None:
        return [Line("depth-3 tree, pysubgroup", "not installable", "no network?")]
    out = []
    for title, kind, flip in (("clean", "clean", 0.0), ("5 % flipped", "flip5", 0.05)):
        right: dict[str, list[str]] = {"tree": [], "subgroup": []}
        for offset, suite in ((0, DEVELOPED), (500, HELD_OUT)):
            tables = []
            for i, (grid, predicate) in enumerate(suite[::step]):
                rng = np.random.default_rng(100_000 * (seed + 1) + 1000 * offset + i)
                table = draw(GRIDS[grid], predicate, 900, rng)
                tables.append({"rows": table.rows, "regressed": (table.truth ^ (rng.random(900) < flip)).tolist()})
            sent = "\n".join(json.dumps(t) for t in tables)
            script = Path(__file__).parent / "study" / "explain_rivals.py"
            done = subprocess.run([str(python), str(script)], input=sent, capture_output=True, text=True, check=True)
            answers: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
            for name, texts in right.items():
                hits = sum(
                    same_on_grid(GRIDS[grid], predicate, answer[name][0])
                    for (grid, predicate), answer in zip(suite[::step], answers, strict=True)
                )
                seconds = float(np.mean([a[name][1] for a in answers]))
                texts.append(f"{hits}/{len(answers)} {seconds:.2f} s")
        out += [Line(f"{name}, {title} ({kind})", *texts) for name, texts in right.items()]
    return out


def _rival_python() -> Path | None:
    """An interpreter with the rivals, in an environment of its own that is kept."""
    python = RIVALS / "bin" / "python"
    probe = [str(python), "-c", "import sklearn, pysubgroup"]
    if python.exists() and subprocess.run(probe, capture_output=True).returncode == 0:
        return python
    for command in (
        [sys.executable, "-m", "venv", str(RIVALS)],
        [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "scikit-learn", "pysubgroup"],
    ):
        if subprocess.run(command, capture_output=True).returncode != 0:
            return None
    return python if subprocess.run(probe, capture_output=True).returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
