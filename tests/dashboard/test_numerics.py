"""The page on numerics: rates per backend and dtype, and the reports of the two tracers, made by the tracers."""

from __future__ import annotations

import html
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dashboard import numeric_facts
from db.engine import open_store
from harness.bundle import BundleWriter
from harness.ingest import ingest_bundle
from harness.model import Case, Environment, InputError, Measurement, Revision, Run, RunEnd, Status, Value, Workload

from . import stores
from .test_views import app, shown


def measured(n: int, dtype: str, status: Status) -> Measurement:
    case = Case("layer_norm", Workload("layer_norm", {"hidden_size": n, "dtype": dtype}), "layer_norm_fp32")
    if status is not Status.OK:
        return Measurement(case, status, stores.NOW, detail="out has 3 of 9 values not finite")
    return Measurement(case, status, stores.NOW, metrics={"latency_s": Value(1e-3), "max_abs_error": Value(1e-3 * n)})


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNWATCH_DB", str(tmp_path / "a.db"))
    monkeypatch.setenv("ATTNWATCH_REPORTS", str(tmp_path / "reports"))
    (tmp_path / "reports").mkdir()
    found = [
        measured(1, "float16", Status.OK), measured(2, "float16", Status.NON_FINITE),
        measured(3, "float16", Status.WRONG), measured(4, "float16", Status.OK),
        measured(5, "float16", Status.TIMED_OUT), measured(1, "float32", Status.OK),
    ]  # fmt: skip
    with BundleWriter(tmp_path / "a.jsonl") as writer:
        environment = Environment(stores.MACHINE, python="3.11")
        writer.run(Run("r", "weekly", Revision("rev"), environment, stores.NOW, planned=len(found)))
        for m in found:
            writer.measurement("r", m)
        writer.end(RunEnd("r", stores.NOW + 1, measured=len(found)))
    with open_store(tmp_path / "a.db") as store:
        ingest_bundle(store, tmp_path / "a.jsonl")
    return tmp_path / "reports"


def tables(at: Any) -> str:
    return "\n".join(d.value.to_csv() for d in at.dataframe)


def test_rates_are_told_per_dtype_and_what_is_not_recorded_by_its_command(reports: Path) -> None:
    at = app("numerics")
    assert not at.exception
    text = html.unescape(shown(at))
    assert "trace-nan MODULE:CALLABLE --json" in text and "diff-snapshots A B --json" in text
    rows = {r["dtype"]: r for r in at.dataframe[0].value.to_dict("records")}
    assert {k: rows["float16"][k] for k in ("gated", "wrong", "NaN or infinity", "largest error")} == {
        "gated": 4, "wrong": 1, "NaN or infinity": 1, "largest error": pytest.approx(4e-3),
    }  # fmt: skip
    assert (
        rows["float16"]["share not finite"].startswith("25.0% [") and rows["float32"]["share not finite"][:4] == "0.0%"
    )


@pytest.mark.slow
def test_a_traced_path_and_a_difference_are_shown(reports: Path) -> None:
    from harness.tracing import nan, snapshots, transformer

    traced = nan.trace(transformer.overflowing).as_json() | {"target": "m:f"}
    (reports / numeric_facts.TRACE).write_text(json.dumps(traced))
    for name, function in (("a", transformer.healthy), ("b", transformer.moved)):
        snapshots.write(function, reports / f"{name}.jsonl")
    parts = snapshots.first_difference(*(snapshots.read(reports / f"{n}.jsonl") for n in "ab"))
    assert parts is not None
    (reports / numeric_facts.DIFFERENCE).write_text(json.dumps({"a": "A", "b": "B", "difference": asdict(parts)}))
    at = app("numerics")
    assert not at.exception
    text = html.unescape(shown(at))
    assert "Not recorded yet" not in text
    assert f"first {traced['culprit']['op']}".split(".")[-1] in text and "the result is not finite" in text
    assert traced["culprit"]["module"] in tables(at)
    assert f"First at node {parts.index}" in text and parts.a is not None and parts.a.node in tables(at)


@pytest.mark.parametrize("text", ["{", "[]", '{"finite": true}', stores.HOSTILE, '{"difference": 3}'])
def test_reports_that_cannot_be_read_are_told_in_words(reports: Path, text: str) -> None:
    for name in (numeric_facts.TRACE, numeric_facts.DIFFERENCE):
        (reports / name).write_text(text)
    at = app("numerics")
    assert not at.exception
    assert len(at.error) == 2 and not any("<img" in e.value for e in at.error)


def test_finite_results_and_equal_recordings_have_no_rows() -> None:
    told = {"target": "m:f", "nodes": 12, "record": None}
    assert numeric_facts.path(json.dumps(told)) == ("m:f: every node is finite (12 ran).", [])
    assert numeric_facts.difference('{"a": "x", "b": "y", "difference": null}')[0] == "No node differs between x and y."
    with pytest.raises(InputError, match=r"trace-nan.json is no record"):
        numeric_facts.path('{"nodes": 1}')
