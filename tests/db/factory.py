"""Small records and bundles for tests of the store; everything follows from the arguments."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import inspect, text

from db.engine import Store
from harness.bundle import BundleWriter
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

MACHINE = Machine("cpu", "Test CPU", host="host-a", details={"cores": 2})
DAY = 86400.0
START = 1.7e9


def make_case(i: int = 0, backend: str = "sdpa_math", *, weight: float = 1.0, **params: Any) -> Case:
    """Case number ``i``."""
    shape = {"batch": 1, "q_len": 128 + i, "kv_len": 128 + i, "dtype": "float32", "causal": i % 2 == 0, **params}
    return Case("prefill", Workload("attention", shape, weight), backend)


def make_run(number: int = 0, *, name: str | None = None, machine: Machine = MACHINE, **changes: Any) -> Run:
    """Run number ``number``, one a day."""
    fields: dict[str, Any] = {
        "id": name or f"run-{number:03d}",
        "suite": "smoke",
        "revision": Revision(f"rev{number}", commit=f"{number:040x}", committed_at=START + DAY * number - 3600),
        "environment": Environment(machine, python="3.11", packages={"torch": "2.13.0"}, kernels_hash=f"k{number}"),
        "started_at": START + DAY * number,
        "reason": Reason.NIGHTLY,
        "planned": 3,
        "options": {"seed": 1},
    }
    return Run(**{**fields, **changes})


def make_measurement(
    case: Case, latency: float = 1e-3, *, status: Status = Status.OK, at: float = START, **changes: Any
) -> Measurement:
    """A measurement; one that is not ok has a detail and no numbers."""
    fields: dict[str, Any] = {"case": case, "status": status, "started_at": at, "duration_s": 0.25}
    if status is Status.OK:
        fields |= {
            "metrics": {
                "latency_s": Value(latency, latency * 0.99, latency * 1.01, 3),
                "peak_memory_bytes": Value(4096.0),
            },
            "samples": {"latency_s": [latency, latency * 0.99, latency * 1.01]},
            "warmup": {"latency_s": [latency * 2]},
            "operators": ["aten::bmm", "aten::softmax"],
            "stop_reason": "width",
            "telemetry": {"load": 0.5},
        }
    else:
        fields["detail"] = f"it was {status.value}"
    return Measurement(**{**fields, **changes})


def write_run(path: Path, run: Run, measurements: list[Measurement], *, end: bool = True) -> Path:
    """Append a run to the bundle at ``path``."""
    with BundleWriter(path) as out:
        out.run(run)
        out.controls(run.id, {"control_gemm_s": Value(0.01, 0.009, 0.011, 5), "control_copy_s": Value(0.002)})
        for m in measurements:
            out.measurement(run.id, m)
        if end:
            out.end(RunEnd(run.id, run.started_at + 60.0, True, len(measurements)))
    return path


def seeded_bundle(path: Path, seed: int, *, runs: int = 3, cases: int = 40) -> Path:
    """Runs of ``cases`` cases each, with some failures and second attempts."""
    rng = random.Random(seed)
    for number in range(runs):
        run = make_run(number, name=f"run-{seed}-{number}", planned=cases)
        out: list[Measurement] = []
        for i in range(cases):
            case, at = make_case(i, rng.choice(("sdpa_math", "segmented"))), run.started_at + i
            if rng.random() < 0.2:
                status = rng.choice((Status.CRASHED, Status.TIMED_OUT, Status.UNSUPPORTED))
                out.append(make_measurement(case, status=status, at=at))
                if status is not Status.UNSUPPORTED:
                    out.append(make_measurement(case, rng.lognormvariate(-7, 1), at=at + 0.5, attempt=2))
            else:
                out.append(make_measurement(case, rng.lognormvariate(-7, 1), at=at))
        write_run(path, run, out)
    return path


def dump(place: Path | Store) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables of a store, sorted; read past what :mod:`db` says of them."""
    if isinstance(place, Store):
        with place.engine.connect() as connection:
            names = inspect(connection).get_table_names()
            return {n: sorted(map(tuple, connection.execute(text(f'SELECT * FROM "{n}"'))), key=repr) for n in names}
    with sqlite3.connect(place) as connection:
        tables = [r[0] for r in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        out = {t: sorted(connection.execute(f'SELECT * FROM "{t}"').fetchall(), key=repr) for t in tables}
    connection.close()
    return out
