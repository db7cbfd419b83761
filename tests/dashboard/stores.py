"""Stores that the pages are opened on: small, seeded, from a scripted world of nights or by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from db.engine import open_store
from db.repository import IncidentRecord, RegressionRecord, upsert_incident
from harness.bundle import BundleWriter
from harness.demo import DECISIONS, FAULTS, World, fill, suite
from harness.demo.faults import NIGHTS, shifted
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
    TriageState,
    Value,
    VerdictKind,
    Workload,
)

MACHINE = Machine("cpu", "Test CPU", host="somewhere")
#: Markdown, HTML, colours, icons, formulas and line ends in every text that a store takes.
HOSTILE = "<img src=x onerror=alert(1)> **b** :red[x] :material/home: $x^2$ [a](javascript:alert(1))\n# h `c` \"q\" 'r'"
NOW = 1.7e9


def measured(case: Case) -> Measurement:
    """What measuring this case might have given, without measuring."""
    p = case.workload.params
    seconds = 1e-5 * (1 + float(str(p["kv_len"])) / 100) * (2 if case.backend == "sdpa_math" else 1)
    samples = [seconds * (1 + 0.01 * math.sin(i)) for i in range(24)]
    metrics = {
        "latency_s": Value(seconds, seconds * 0.99, seconds * 1.01, 24), "flops_per_s": Value(1e6 / seconds),
        "bytes_per_s": Value(1e5 / seconds), "tokens_per_s": Value(1 / seconds), "operator_calls": Value(10.0),
        "peak_memory_bytes": Value(4096.0 * float(str(p["kv_len"]))), "output_bytes": Value(2048.0),
        "workspace_bytes": Value(2048.0), "max_abs_error": Value(1e-7),
    }  # fmt: skip
    return Measurement(
        case, Status.OK, NOW, 0.1, metrics=metrics, samples={"latency_s": samples}, warmup={"latency_s": [1.0]},
        operators=["aten::flash"], discarded={"preempted": 2}, telemetry={"disturbed": 0.1, "load_1m": 1.0},
    )  # fmt: skip


def nights(path: Path, count: int = 6, last_start: float = NOW) -> World:
    """The last ``count`` nights of the demonstration, without measuring."""
    environment = Environment(MACHINE, python="3.11", packages={"torch": "2.13.0"})
    real = {c.key: measured(c) for c in suite()}
    world = World(
        environment, real, {"control_gemm_s": 0.004}, shifted(FAULTS, count), nights=count, last_start=last_start
    )
    with open_store(path) as store:
        fill(store, world, [d for d in DECISIONS if d.of >= NIGHTS - count + 1])
    return world


def run(
    path: Path, name: str, cases: list[Case], *, at: float = NOW, text: str = "",
    packages: dict[str, str] | None = None, **changes: Any,
) -> None:  # fmt: skip
    """One run of ``cases`` in the store at ``path``; ``packages`` beside torch."""
    installed = {"torch": text or "2.13.0", **(packages or {})}
    environment = Environment(MACHINE, python="3.11", packages=installed, kernels_hash=name)
    fields: dict[str, Any] = {
        "id": name, "suite": "smoke", "revision": Revision(f"{name}-revision", subject=text), "planned": len(cases),
        "environment": environment, "started_at": at, "reason": Reason.NIGHTLY,
    }  # fmt: skip
    bundle = path.with_suffix(f".{len(name)}.jsonl")
    bundle.unlink(missing_ok=True)
    with BundleWriter(bundle) as writer:
        writer.run(Run(**{**fields, **changes}))
        for i, case in enumerate(cases):
            writer.measurement(name, measured(case))
            if text and i == 0:
                writer.measurement(name, Measurement(_named(text), Status.WRONG, at, detail=text, attempt=2))
        writer.end(RunEnd(name, at + 60, measured=len(cases)))
    with open_store(path) as store:
        ingest_bundle(store, bundle)


def _named(text: str) -> Case:
    return Case(text, Workload("attention", {"kv_len": 1, "q_len": 1, "mask": text}), text)


def grid(count: int, backend: str = "sdpa_math") -> list[Case]:
    """``count`` cases over two parameters."""
    return [
        Case("decode", Workload("attention", {"q_len": 1, "kv_len": 1 + i // 8, "batch": 1 + i % 8}), backend)
        for i in range(count)
    ]


def incident(path: Path, name: str, cases: list[Case], *, text: str = "", **changes: Any) -> None:
    """An incident over ``cases`` between the runs ``base`` and ``head`` of the store."""
    fields: dict[str, Any] = {
        "id": name, "title": text or f"sdpa_math slower, incident {name}", "machine": MACHINE.fingerprint,
        "trigger_text": text or "kv_len % 2 == 1", "first_bad_revision": "head-revision", "owner": text,
        "last_good_revision": "base-revision", "effect": 1.3, "effect_low": 1.2, "effect_high": 1.4,
        "evidence": {"how": [text or "measured again"], "alternatives": [text or "kv_len % 4 == 1"]},
    }  # fmt: skip
    rows = [
        RegressionRecord(
            c.key, "latency_s", VerdictKind.SLOWER, TriageState.CONFIRMED if i % 2 else TriageState.SUSPECT, "base",
            "head", 1.3, 1.2, 1.4, 1e-6, 0.02,
        )
        for i, c in enumerate(cases)
    ]  # fmt: skip
    with open_store(path) as store:
        upsert_incident(store, IncidentRecord(**{**fields, **changes}), rows, at=NOW)
