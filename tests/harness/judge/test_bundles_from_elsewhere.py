"""Bundles that another machine measured are judged by their history when they are ingested."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.engine import open_store
from harness.bundle import BundleWriter
from harness.imports import import_paths, judge_new
from harness.judge.listing import open_incidents
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

CASES = [
    Case("decode", Workload("attention", {"q_len": q, "kv_len": n, "head_dim": d}), backend)
    for backend in ("sdpa_math", "segmented")
    for q in (1, 4)
    for d in (64, 128)
    for n in (127, 128, 129, 256, 300, 384, 385, 512, 516, 640)
]


def nights(path: Path, count: int, step_at: int) -> Path:
    """Nights of a GPU runner; from ``step_at`` on one predicate costs a fifth more."""
    environment = Environment(Machine("cuda", "Some GPU"), kernels_hash="k")
    with BundleWriter(path) as writer:
        for night in range(count):
            at = 1.7e9 + 86400 * night
            revision = Revision(f"{night:040x}", f"{night:040x}", kernels_hash="k")
            writer.run(Run(f"r{night}", "nightly", revision, environment, at, Reason.NIGHTLY, len(CASES)))
            for i, case in enumerate(CASES):
                p = case.workload.params
                odd = case.backend == "segmented" and p["q_len"] == 1 and int(str(p["kv_len"])) % 128 != 0
                wiggle = 1 + 0.01 * (((night * 31 + i * 7919) % 13) / 6 - 1)
                value = 1e-4 * (1 + i) * wiggle * (1.2 if odd and night >= step_at else 1.0)
                metrics = {"latency_s": Value(value, value * 0.99, value * 1.01, 20), "flops_per_s": Value(1e9 / value)}
                writer.measurement(f"r{night}", Measurement(case, Status.OK, at + i, metrics=metrics))
            writer.end(RunEnd(f"r{night}", at + 600, measured=len(CASES)))
    return path


@pytest.mark.slow
def test_a_step_in_ingested_nights_is_one_incident_told_once(tmp_path: Path) -> None:
    bundle = nights(tmp_path / "b.jsonl", 40, 28)
    with open_store(tmp_path / "s.db") as store:
        import_paths(store, [bundle])
        told = judge_new(store)
        (incident,) = open_incidents(store)
        assert told == [incident["id"]] and incident["state"] == "new"
        assert incident["trigger"] == "backend == 'segmented' and q_len == 1 and kv_len % 128 != 0"
        assert incident["first_bad_revision"] == f"{28:040x}" and 1.15 < incident["effect"] < 1.25
        again = import_paths(store, [bundle])
        assert again["taken"] == 0 and judge_new(store) == []


def test_quiet_nights_raise_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.db") as store:
        import_paths(store, [nights(tmp_path / "b.jsonl", 20, 99)])
        assert judge_new(store) == [] and open_incidents(store) == []
