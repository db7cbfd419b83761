"""The page on memory: parts, exponents, the model, what ran out, a trace and a history, stored as runs store them."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashboard import memory_facts
from dashboard.charts import memory as charts
from db.engine import open_store
from db.queries import CaseRow, runs
from db.screens import CaseValues, case_values
from harness.bundle import BundleWriter
from harness.catalogue import bandwidth, fragmentation
from harness.ingest import ingest_bundle
from harness.model import Case, Environment, InputError, Measurement, Revision, Run, RunEnd, Status, Value, Workload
from harness.model.trace import TELEMETRY, Event, encode

from . import stores
from .test_charts import titles
from .test_views import app, shown

EVENTS = [
    Event(1000, "ENTRY", 4096, 512, name="segmented.q"), Event(2000, "ALLOC", 10_000, 1 << 20),
    Event(3000, "ALLOC", 90_000_000, 1 << 19), Event(4000, "COPY", 90_000_000, 512, src=4096),
    Event(5000, "FREE", 10_000, 1 << 20), Event(9000, "FREE", 90_000_000, 1 << 19),
]  # fmt: skip


def step(phase: str, n: int, backend: str = "step_segmented") -> Case:
    params: dict[str, Any] = {
        "phase": phase, "batch": 2, "q_len": n, "kv_len": n, "heads_q": 2, "heads_kv": 1, "head_dim": 16,
        "dtype": "float32",
    }  # fmt: skip
    return Case("batch_memory", Workload("model_step", params), backend)


def measured(case: Case) -> Measurement:
    n = float(str(case.workload.params["q_len"]))
    if case.backend == "step_scores" and n > 1024:
        return Measurement(case, Status.OUT_OF_MEMORY, stores.NOW, detail="first call: can't allocate memory")
    power = 2 if case.backend == "step_scores" and n > 256 else 1
    peak = 1e5 * n * (n / 256) ** (power - 1)
    parts = {
        "peak_activations_bytes": 0.5 * peak,
        "peak_workspace_bytes": 0.3 * peak,
        "peak_gradients_bytes": 0.2 * peak,
    }
    values = {
        "latency_s": 1e-3, "peak_memory_bytes": peak, "input_bytes": 5e4, "kv_model_bytes": 256 * n,
        "kv_cache_bytes": 256.0 * n * (1 if n < 512 else 2), **parts,
    }  # fmt: skip
    return Measurement(case, Status.OK, stores.NOW, metrics={k: Value(v) for k, v in values.items()})


LENGTHS = (64, 128, 256, 512, 1024, 2048)


def stored(path: Path, *, trace: str | None = None) -> None:
    cases = [step("prefill", n, b) for b in ("step_segmented", "step_scores") for n in LENGTHS]
    environment = Environment(stores.MACHINE, python="3.11")
    bundle = path.with_suffix(".jsonl")
    with BundleWriter(bundle) as writer:
        writer.run(Run("r", "weekly", Revision("rev"), environment, stores.NOW, planned=len(cases)))
        for case in cases:
            m = measured(case)
            if trace is not None and m.status is Status.OK:
                m = replace(m, telemetry={TELEMETRY: trace})
            writer.measurement("r", m)
        writer.end(RunEnd("r", stores.NOW + 1, measured=len(cases)))
    with open_store(path) as store:
        ingest_bundle(store, bundle)


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNWATCH_DB", str(tmp_path / "a.db"))
    monkeypatch.setenv("ATTNWATCH_REPORTS", str(tmp_path / "reports"))
    return tmp_path / "a.db"


def rows_of(path: Path) -> list[Any]:
    with open_store(path, read_only=True) as store:
        (run,) = runs(store)
        return case_values(store, run.id, [*memory_facts.PARTS.values(), "peak_memory_bytes", "input_bytes",
                                           "kv_model_bytes", "kv_cache_bytes"])  # fmt: skip


def test_without_records_the_page_says_what_it_would_take(db: Path) -> None:
    stored(db)
    at = app("memory")
    assert not at.exception
    text = html.unescape(shown(at))
    assert "ATTNWATCH_TRACE_MEM=1" in text and "harness.catalogue.fragmentation" in text
    assert "Out of memory" in text and "1 cases did not fit" in text
    assert any("256: 1" in d.value.to_csv() for d in at.dataframe), "the knee"


def test_what_is_recorded_is_shown(db: Path, tmp_path: Path) -> None:
    stored(db, trace=encode(EVENTS, 3))
    fragmentation.record(tmp_path / "reports" / "fragmentation.json", blocks=1000, requests=200, frames=12, cells=16)
    at = app("memory")
    assert not at.exception
    text = html.unescape(shown(at))
    assert text.count("needs the stream benchmark") == 1 and "Model against measured: needs" not in text
    assert "6 events" in text and "3 older ones were dropped" in text
    assert "over 1,000 blocks" in text and "A model" in text


@pytest.mark.parametrize("trace", ["{", '{"version":9}', stores.HOSTILE])
def test_records_that_cannot_be_read_are_told_in_words(db: Path, tmp_path: Path, trace: str) -> None:
    stored(db, trace=trace)
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "fragmentation.json").write_text(trace)
    at = app("memory")
    assert not at.exception
    assert len(at.error) == 2
    assert not any("<img" in e.value for e in at.error)


def test_parts_and_inputs_are_told_apart(db: Path) -> None:
    stored(db)
    row = next(r for r in rows_of(db) if r.case.params["q_len"] == 256)
    parts = memory_facts.parts_of(row)
    assert parts["kv_cache input"] == 256 * 256 and parts["inputs"] == 5e4 - 256 * 256
    assert sum(parts.values()) == pytest.approx(5e4 + row.values["peak_memory_bytes"].value)


def test_exponents_and_knees_of_a_run(db: Path) -> None:
    stored(db)
    found = {f["backend"]: f for f in memory_facts.exponent_rows(rows_of(db), "peak_memory_bytes")}
    assert found["step_segmented"]["value"] == pytest.approx(1.0) and found["step_segmented"]["knee"] == ""
    assert found["step_scores"]["value"] > 1.2 and found["step_scores"]["knee"].startswith("256: 1")


def test_gaps_mark_what_parts_from_the_model(db: Path) -> None:
    stored(db)
    made = memory_facts.gaps(rows_of(db))
    assert {(m["y"] / m["x"] > 1.5) == m["alarm"] for m in made} == {True}
    assert {round(m["share"], 3) for m in made} == {0.0, 1.0}


def test_a_trace_becomes_levels_and_an_address_space_without_gaps() -> None:
    steps = memory_facts.levels(EVENTS)
    assert [s["mib"] for s in steps] == [0.0, 1.0, 1.5, 0.5, 0.0, 0.0]
    assert [m["what"] for m in memory_facts.marks(EVENTS)] == ["segmented.q", "COPY"]
    cells = memory_facts.address_rows(EVENTS)
    assert max(c["cell2"] for c in cells) == 1.5 * 2**20, "90 MB of gap are left out"
    assert 0.0 <= min(c["held"] for c in cells) <= max(c["held"] for c in cells) == 1.0
    # Bytes held are the same in both pictures, at every moment.
    for t in sorted({c["t2"] for c in cells}):
        in_map = sum(c["held"] * (c["cell2"] - c["cell"]) for c in cells if c["t2"] == t)
        now = [s["mib"] for s in steps if s["t"] <= t + 1e-9]
        assert in_map == pytest.approx((now[-1] if now else 0.0) * 2**20, abs=2**20 * 0.01)
    assert memory_facts.address_rows(EVENTS[:2]) == []


def test_a_hundred_thousand_blocks_fit_one_picture(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    fragmentation.record(path, blocks=100_000, requests=150)
    cells, table, blocks = memory_facts.history_rows(path.read_text())
    assert blocks == 100_000 and [t["policy"] for t in table] == ["first_fit", "best_fit", "paged"]
    one = [c for c in cells if c["policy"] == "paged"]
    assert len(one) <= 96 * 128 and max(c["cell2"] for c in one) == pytest.approx(100_000)
    assert {"time (steps)", "block"} <= titles(charts.address_map(cells[:100], "time (steps)", "block", facet=True))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"blocks":0,"policies":{"a":{"time":[1,2],"held":[[0],[1]]}}}'])
def test_other_histories_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="no history of fragmentation"):
        memory_facts.history_rows(text)


def test_charts_name_their_units() -> None:
    dots = [{"x": 1.0, "y": 2.0, "backend": "mine", "label": "l", "share": 1.0, "alarm": True}]
    assert {"model (MiB)", "measured (MiB)"} <= titles(charts.against(dots, "model (MiB)", "measured (MiB)"))
    line = [{"name": "mine over seq_len", "backend": "mine", "value": 1.0, "low": 0.9, "high": 1.1, "shown": "1"}]
    assert any("95 % interval" in t for t in titles(charts.exponents(line)))
    held = titles(charts.timeline(memory_facts.levels(EVENTS), memory_facts.marks(EVENTS)))
    assert {"held (MiB)", "time since the first event (us)", "bytes"} <= held


def streams(sizes: int) -> list[CaseValues]:
    w = 8192.0 * 2.0 ** np.arange(sizes)
    speeds = bandwidth.curve(w, 5e10, 1.2, 1e6)
    found = []
    for n, y in enumerate(speeds):
        params: dict[str, Any] = {"rows": 2**n, "columns": 1024, "dtype": "float32", "env": "OMP_NUM_THREADS=1"}
        case = CaseRow(str(n), "stream", "1", "stream", "stream_copy", params, f"rows={2**n}", 1.0)
        found.append(CaseValues(case, "ok", n, {"bytes_per_s": Value(float(y))}))
    return found


def test_saturation_is_fitted_and_too_few_points_are_told() -> None:
    dots, curves, (words,) = memory_facts.saturation(streams(14))
    assert len(dots) == 14 and max(abs(d["residual"]) for d in dots) < 1e-3
    assert {c["what"] for c in curves} == {"fit", "a of H100 as published", "a of A100 as published"}
    assert words.startswith("stream_copy OMP_NUM_THREADS=1: peak 5e+10")
    assert {"bandwidth (GB/s)", "bytes in flight"} <= titles(charts.saturation(dots, curves, "bytes in flight"))
    assert memory_facts.saturation(streams(3))[::2] == (
        [], ["stream_copy OMP_NUM_THREADS=1: 3 amounts of work; a fit of 3 parameters needs one more at least"],
    )  # fmt: skip
    assert memory_facts.saturation([]) == ([], [], [])
