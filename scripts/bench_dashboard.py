"""Does the dashboard stay quick on a large store? Exits 1 where a bar is missed.

Fills a seeded store (10,000 series of 100 runs; ``--quick`` 1,000), starts the server on it and opens every page in a
browser: at first after the server's start, then warm. A page counts as painted when what it is about is on it, the text
that ``PAGES`` waits for. Memory is the largest resident set of the server.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from db.engine import open_store

PAINT_S, WARM_S, MEMORY_MB = 1.5, 2.0, 400.0
TRIES = 3
SIZE = {"width": 1440, "height": 1000}
DAY = 86400.0
BACKENDS = ("sdpa_math", "sdpa_flash", "segmented", "flex", "flash_attn")
#: Address of a page, and a text that is there once what it is about has been painted.
PAGES = {
    "": "regression number 0",
    "incident?incident=inc0": "regression number 0",
    "series": "series, moved farthest first",
    "series?changed=true&backend=segmented": "series, moved farthest first",
    "compare": "Advice for",
    "compare?what=two+runs": "within noise",
    "sweep": "Colours are logarithmic",
    "memory": "How the peak grows",
    "numerics": "Largest error against the oracle",
    "static": "Operators or kernels dispatched",
    "runs": "Cases by status",
}


def fill(path: Path, cases: int, runs: int, seed: int = 1) -> None:
    """A store of ``cases`` series of ``runs`` runs, with incidents of which the first holds half of the cases."""
    rng = random.Random(seed)
    open_store(path).close()
    now = time.time()
    with sqlite3.connect(path, isolation_level=None) as db:
        db.executescript("PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; BEGIN")

        def put(table: str, rows: Any, width: int) -> None:
            db.executemany(f'INSERT INTO "{table}" VALUES ({",".join("?" * width)})', rows)

        put("machine", [(1, "bench-machine", "cuda", "Bench GPU", "default", "1")], 6)
        put("environment", [(1, "e1", 1, "3.11", '{"torch":"2.12.1"}', "1", "{}", 1, "k", "1"),
                            (2, "e2", 1, "3.11", '{"torch":"2.13.0"}', "1", "{}", 1, "k", "1")], 10)  # fmt: skip
        metrics = [("latency_s", "s", "lower", 0), ("peak_memory_bytes", "B", "lower", 1),
                   ("flops_per_s", "FLOP/s", "higher", 0), ("bytes_per_s", "B/s", "higher", 0),
                   ("operator_calls", "1", "lower", 1), ("max_abs_error", "1", "lower", 0)]  # fmt: skip
        put("metric", [(i + 1, *m) for i, m in enumerate(metrics)], 5)
        put("revision", [(r + 1, f"{r:040x}", f"{r:040x}", 0, 0.0, f"commit {r}", "k") for r in range(runs)], 7)
        start = now - DAY * runs + DAY / 2
        put("run", [
            (r + 1, f"run{r}", "nightly", "nightly", r + 1, 1 + (r > runs // 2), 1, "host", "", "{}", "",
             start + DAY * r, start + DAY * r + 3600, 1, cases, cases, "1", "{}")
            for r in range(runs)
        ], 18)  # fmt: skip
        put("case", ((c + 1, f"case{c:06d}", *_case(c)) for c in range(cases)), 9)
        # Every second batch size: half of all combinations, which is the trigger of the first incident.
        hit = {c for c in range(cases) if c // len(BACKENDS) % 2 == 0}
        levels = [10 ** rng.uniform(-4, -1) for _ in range(cases)]
        columns = ("id", "run_id", "case_id", "attempt", "superseded", "status", "detail", "started_at", "duration_s",
                   "stop_reason", "samples", "operators", "telemetry", "discarded")  # fmt: skip
        marks = ",".join("?" * len(columns))
        for r in range(runs):
            base = r * cases
            bad = r >= runs - 2
            at = start + DAY * r
            db.executemany(
                f"INSERT INTO measurement ({','.join(columns)}) VALUES ({marks})",
                ((base + c + 1, r + 1, c + 1, 1, 0, "ok", "", at + c * 0.1, 0.1, "width", None, '["flash_fwd"]',
                  '{"load_1m":0.5}', '{"throttled":1}' if c % 50 == 0 else None) for c in range(cases)),
            )  # fmt: skip
            noise = [rng.gauss(1, 0.01) for _ in range(1024)]
            rows = []
            for c in range(cases):
                value = levels[c] * noise[(c * 7 + r) % 1024] * (1.3 if bad and c in hit else 1.0)
                m = base + c + 1
                rows += [
                    (m, 1, value, value * 0.99, value * 1.01, 20), (m, 2, 4096.0 * (c + 1), None, None, 1),
                    (m, 3, 1e9 / value, None, None, 1), (m, 4, 1e7 / value, None, None, 1),
                    (m, 5, 12.0, None, None, 1), (m, 6, 1e-6 * noise[c % 1024], None, None, 1),
                ]  # fmt: skip
            put("metric_value", rows, 6)
        states = ["new", "acknowledged", "fixed", "expected", "false_positive", "dismissed"]
        put("incident", [
            (f"inc{i}", f"regression number {i}", "batch % 2 == 1" if i == 0 else f"kv_len % {i + 2} == 1",
             "new" if i == 0 else states[1 + i % 5], 1, runs - 1, runs - 2, 1.3, 1.28, 1.32, now - DAY * (i + 1),
             now - DAY * (i + 1), "", json.dumps({"how": ["base and head interleaved, 24 pairs"], "alternatives": []}))
            for i in range(300)
        ], 14)  # fmt: skip
        held = [("inc0", c) for c in sorted(hit)] + [
            (f"inc{i}", (i * 13 + k) % cases) for i in range(1, 300) for k in range(9)
        ]
        put("regression", [
            (n + 1, i, c + 1, 1, runs - 2, runs, 1.3, 1.28, 1.32, 1e-6, 0.02, "slower", "confirmed", "ok", "ok")
            for n, (i, c) in enumerate(held)
        ], 15)  # fmt: skip
        put(
            "triage_event",
            [(i + 1, f"inc{i}", now - DAY * i, None, "new", "opened", "attnwatch") for i in range(300)],
            7,
        )
        db.execute("COMMIT")
        db.execute("ANALYZE")
    db.close()


def _case(c: int) -> tuple[Any, ...]:
    w = c // len(BACKENDS)
    params = {
        "batch": 1 + w % 8, "heads_q": 8, "heads_kv": 8, "q_len": 1, "kv_len": 127 + w // 96 * 128 + w // 32 % 3,
        "head_dim": (64, 128)[w // 8 % 2], "dtype": "float16", "causal": w // 16 % 2 == 0, "direction": "fwd",
    }  # fmt: skip
    label = " ".join(f"{k}={v}" for k, v in params.items())
    name = "decode" if w % 3 else "prefill"
    return (name, "1", "attention", BACKENDS[c % len(BACKENDS)], json.dumps(params), label, 1.0)


@contextmanager
def server(database: Path) -> Iterator[tuple[str, int]]:
    """The dashboard on ``database``: (address, process id)."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    app = Path(__file__).parents[1] / "dashboard" / "app.py"
    command = [
        sys.executable, "-m", "streamlit", "run", str(app), "--server.port", str(port), "--server.headless", "true",
        "--server.address", "127.0.0.1", "--browser.gatherUsageStats", "false", "--server.fileWatcherType", "none",
        "--client.toolbarMode", "minimal",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, env={**os.environ, "ATTNWATCH_DB": str(database)}, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    address = f"http://127.0.0.1:{port}/"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{address}_stcore/health", timeout=2).read()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("the dashboard did not start") from None
                time.sleep(0.1)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait(timeout=20)


def peak_mb(pid: int) -> float:
    """Largest resident set of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(x for x in lines if x.startswith("VmHWM")).split()[1]) / 1024


def visits(address: str) -> tuple[list[tuple[str, float, float]], float]:
    """(page, seconds until painted at first, seconds warm), and seconds of Incidents in a browser new to the server.

    Warm times are the best of :data:`TRIES` in one browser profile; what the machine's other work adds is not ours.
    """
    from playwright.sync_api import Browser, BrowserContext, sync_playwright

    def visit(context: BrowserContext, name: str) -> float:
        page = context.new_page()
        start = time.perf_counter()
        page.goto(address + name, wait_until="commit")
        page.get_by_text(PAGES[name]).first.wait_for(timeout=60_000)
        seconds = time.perf_counter() - start
        page.locator('[data-testid="stStatusWidget"]').wait_for(state="detached", timeout=60_000)
        if page.locator('[data-testid="stException"]').count():
            raise SystemExit(f"{name}: an exception instead of the page")
        page.close()
        return seconds

    def fresh(browser: Browser, name: str) -> float:
        context = browser.new_context(viewport=SIZE)
        seconds = visit(context, name)
        context.close()
        return seconds

    out = []
    with sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=["--no-sandbox", "--headless", "--disable-background-networking", "--no-first-run"],
        )
        context = browser.new_context(viewport=SIZE)
        # The browser's own start is not the dashboard's.
        context.new_page().goto("about:blank")
        for name in PAGES:
            first = visit(context, name)
            out.append((name or "incidents", first, min(visit(context, name) for _ in range(TRIES))))
        paint = min(fresh(browser, "") for _ in range(TRIES))
        browser.close()
    return out, paint


def main() -> int:
    """Run the benchmark; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="1,000 series; says nothing about the bars' store")
    parser.add_argument("--db", type=Path, help="keep the store here and use it again")
    args = parser.parse_args()
    cases = 1000 if args.quick else args.cases
    with tempfile.TemporaryDirectory() as folder:
        path = args.db or Path(folder) / "bench.db"
        if not path.exists():
            start = time.perf_counter()
            fill(path, cases, args.runs)
            print(f"{cases:,} series x {args.runs} runs in {time.perf_counter() - start:.0f} s, "
                  f"{path.stat().st_size / 1e6:.0f} MB")  # fmt: skip
        with server(path) as (address, pid):
            found, paint = visits(address)
            memory = peak_mb(pid)
    print(f"{'page':<40} {'first s':>8} {'warm s':>8}")
    missed = []
    for name, first, warm in found:
        missed += [name] if warm > WARM_S else []
        print(f"{name:<40} {first:>8.2f} {warm:>8.2f}{'  over' if warm > WARM_S else ''}")
    missed += ["paint"] if paint > PAINT_S else []
    print(f"first useful paint of Incidents in a new browser: {paint:.2f} s (bar {PAINT_S})")
    missed += ["memory"] if memory > MEMORY_MB else []
    print(f"server, largest resident set: {memory:.0f} MB (bar {MEMORY_MB:.0f})")
    small = " (a small store: --quick)" if cases * args.runs < 1_000_000 else ""
    print(f"bars{small}: {'MISSED: ' + ', '.join(missed) if missed else 'met'}")
    return bool(missed)


if __name__ == "__main__":
    raise SystemExit(main())
