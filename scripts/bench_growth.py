"""How a store grows: size, ingest rate, and what the dashboard and the judge wait for, for a number of measurements.

Fills an empty store (a new SQLite file, or the empty database of ``--db``) with seeded nights of 1,000 cases, each
measurement with nine metrics and 24 samples, through the same ingest as everywhere. Prints one line of JSON for each
number of measurements. The figures of docs/scale.md are made with it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from db import queries, screens
from db.engine import Store, open_store
from db.pruning import store_bytes
from harness.bundle import BundleWriter
from harness.ingest import ingest_bundle
from harness.model import (
    Case,
    Environment,
    Machine,
    Measurement,
    Reason,
    Revision,
    Run,
    RunEnd,
    Status,
    Value,
    Workload,
)

CASES = 1000
NIGHTS_A_BUNDLE = 20
DAY = 86400.0
BACKENDS = ("sdpa_math", "sdpa_flash", "segmented", "paged")
MACHINE = Machine("cpu", "Growth CPU", host="growth")


def case(i: int) -> Case:
    """Case number ``i`` of 1,000."""
    shape = {"batch": 1, "heads_q": 8, "q_len": 64 + i // 4, "kv_len": 64 + i // 4, "head_dim": 64, "dtype": "float16"}
    return Case("prefill", Workload("attention", shape), BACKENDS[i % 4])


def measured(i: int, night: int, at: float) -> Measurement:
    """What measuring case ``i`` in a night might give."""
    noise = [math.sin(i * 12.9898 + night * 78.233 + k) for k in range(24)]
    seconds = 1e-4 * (1 + i / CASES)
    samples = [seconds * (1 + 0.02 * x) for x in noise]
    mid = statistics.median(samples)
    metrics = {
        "latency_s": Value(mid, mid * 0.99, mid * 1.01, 24), "flops_per_s": Value(1e9 / mid),
        "bytes_per_s": Value(1e8 / mid), "tokens_per_s": Value(64 / mid),
        "operator_calls": Value(10.0), "peak_memory_bytes": Value(4096.0 * (1 + i)),
        "output_bytes": Value(2048.0), "workspace_bytes": Value(2048.0), "max_abs_error": Value(1e-7 * abs(noise[0])),
    }  # fmt: skip
    return Measurement(
        case(i), Status.OK, at + i, 0.4, metrics=metrics, samples={"latency_s": samples},
        warmup={"latency_s": samples[:3]}, operators=["aten::_scaled_dot_product_flash_attention"], stop_reason="width",
        telemetry={"load_1m": 0.5, "disturbed": 0.01, "calls": 120},
    )  # fmt: skip


def write_nights(path: Path, first: int, count: int) -> None:
    """A bundle of ``count`` nights from night ``first`` on."""
    environment = Environment(MACHINE, python="3.11", packages={"torch": "2.13.0"}, kernels_hash="growth")
    with BundleWriter(path) as out:
        for night in range(first, first + count):
            start = 1.6e9 + DAY * night
            revision = Revision(f"{night:040x}", f"{night:040x}", committed_at=start - 3600)
            run = Run(f"growth-{night}", "nightly", revision, environment, start, Reason.NIGHTLY, CASES)
            out.run(run)
            for i in range(CASES):
                out.measurement(run.id, measured(i, night, start))
            out.end(RunEnd(run.id, start + CASES, measured=CASES))


def waited(ask: Callable[[], object]) -> list[float]:
    """Seconds of a first call and the median of five more."""
    times = []
    for _ in range(6):
        began = time.perf_counter()
        ask()
        times.append(time.perf_counter() - began)
    return [round(times[0], 4), round(statistics.median(times[1:]), 4)]


def first_page(store: Store) -> None:
    """What the dashboard asks before it shows its first page."""
    screens.mark(store)
    screens.holdings(store)
    screens.incident_page(store)
    screens.coverage(store)


def main() -> int:
    """Fill and measure; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measurements", type=int, nargs="+", default=[100_000])
    parser.add_argument("--db", help="an empty database; a temporary SQLite file by default")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bundle, url = Path(folder) / "b.jsonl", a.db or str(Path(folder) / "growth.db")
        nights, spent = 0, 0.0
        for wanted in sorted(a.measurements):
            began_at, spent = nights, 0.0
            while nights * CASES < wanted:
                count = min(NIGHTS_A_BUNDLE, wanted // CASES - nights)
                bundle.unlink(missing_ok=True)
                write_nights(bundle, nights, count)
                began = time.perf_counter()
                with open_store(url) as store:
                    taken = ingest_bundle(store, bundle).taken
                spent += time.perf_counter() - began
                if taken != count * CASES:
                    print(f"the store was not empty: {taken} taken", file=sys.stderr)
                    return 2
                nights += count
            with open_store(url) as store:
                machine = queries.machines(store)[0].fingerprint
                print(
                    json.dumps(
                        {
                            "measurements": nights * CASES,
                            "store": store.engine.dialect.name,
                            "bytes": store_bytes(store),
                            "ingested_per_s": round((nights - began_at) * CASES / spent),
                            "first_page_s": waited(lambda s=store: first_page(s)),
                            "atlas_s": waited(lambda s=store, m=machine: screens.atlas(s, m, "latency_s")),
                            "history_90_s": waited(
                                lambda s=store, m=machine: queries.history(s, m, "latency_s", max_runs=90)
                            ),
                            "series_s": waited(
                                lambda s=store, m=machine: queries.series(s, "latency_s", m, [case(7).key])
                            ),
                        }
                    ),
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
