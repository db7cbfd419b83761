"""Memory of keys and values beside the model, where people look: the report of a night and the doctor."""

from __future__ import annotations

import html
from pathlib import Path

from db.engine import open_store
from harness.bundle import BundleWriter
from harness.catalogue.kv_memory import model_bytes
from harness.cli.measuring import kv_needs
from harness.ingest import ingest_bundle
from harness.judge import JudgePlan, judge_night
from harness.model import Case, Environment, Machine, Measurement, Revision, Run, RunEnd, Status, Value
from harness.model.suite import grid
from harness.report import markdown, summary


def judged(folder: Path, factor: float) -> tuple[str, str]:
    """Summary and page of a night whose second case holds ``factor`` times what the model says."""
    cases = [Case("decode", w, "segmented") for w in grid("attention", q_len=1, kv_len=[64, 128, 256])]
    folder.mkdir()
    with BundleWriter(folder / "a.jsonl") as writer:
        environment = Environment(Machine("cpu", "Test CPU"), python="3.11")
        writer.run(Run("r", "nightly", Revision("rev"), environment, 1.7e9, planned=len(cases)))
        for i, case in enumerate(cases):
            needs = float(model_bytes(case.workload.params) or 0)
            held = needs * (factor if i == 1 else 1.02)
            metrics = {"latency_s": 1e-3, "kv_model_bytes": needs, "kv_cache_bytes": held}
            writer.measurement(
                "r", Measurement(case, Status.OK, 1.7e9 + i, metrics={k: Value(v) for k, v in metrics.items()})
            )
        writer.end(RunEnd("r", 1.7e9 + 9, measured=len(cases)))
    with open_store(folder / "a.db") as store:
        ingest_bundle(store, folder / "a.jsonl")
        report = judge_night(
            store, "r", JudgePlan("cpu", folder, "", "nightly"), lambda i, n, text: None, lambda text: None
        )
    return summary(report), html.unescape(markdown(report))


def test_a_night_tells_where_memory_parts_from_the_model_and_is_silent_otherwise(tmp_path: Path) -> None:
    for text in judged(tmp_path / "off", 2.0):
        assert "K/V memory parts from the model C x L by more than 5% in 1 of 3 cases, most in segmented" in text
        assert "kv_len=128" in text and "(+100%)" in text
    assert not any("K/V memory" in text for text in judged(tmp_path / "same", 0.98))


def test_the_doctor_names_the_case_that_does_not_fit() -> None:
    (tight,) = kv_needs({"memory_bytes": 10**12, "device_memory_bytes": 1000}, ["smoke"])
    assert tight["fits"] is False and tight["memory_bytes"] == 1000 < tight["kv_bytes"] and "kv_len=" in tight["case"]
    (wide,) = kv_needs({"memory_bytes": 10**12}, ["smoke"])
    assert wide["fits"] is True and wide["kv_bytes"] == tight["kv_bytes"]
    assert kv_needs({}) == []
