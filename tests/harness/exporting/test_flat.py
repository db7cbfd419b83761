"""Bencher, github-action-benchmark, Parquet, and CSV that comes back."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from db.engine import Store, open_store
from db.queries import measurements_of_run, runs
from harness.exporting import write
from harness.imports import import_paths
from harness.ingest import ingest_bundle
from harness.model import Case, InputError, Status, Value, Workload
from tests.db.factory import make_case, make_measurement, make_run, write_run


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two runs; the newer has a failure, a rate, and names that a spreadsheet would compute."""
    bundle = tmp_path / "b.jsonl"
    write_run(bundle, make_run(0), [make_measurement(make_case(0), 2e-3)])
    evil = Case('=HYPERLINK("x")', Workload("+op", {"n": 1, "text": "@SUM(1)"}), "-cmd|' /C'!A0")
    found = [
        make_measurement(make_case(0), 1e-3),
        make_measurement(make_case(1), status=Status.CRASHED, detail="=1+1"),
        make_measurement(evil, metrics={"latency_s": Value(5e-4), "flops_per_s": Value(2e9, 1e9, 3e9, 5)}),
    ]
    write_run(bundle, make_run(1), found)
    opened = open_store(tmp_path / "s.db")
    ingest_bundle(opened, bundle)
    return opened


def test_bencher_metric_format(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "bmf.json"
    assert write(store, "bencher", None, str(out)) == 4
    plain = json.loads(out.read_text())
    name = next(k for k in plain if k.startswith("prefill sdpa_math"))
    assert plain[name]["latency"] == {
        "value": pytest.approx(1e6), "lower_value": pytest.approx(0.99e6), "upper_value": pytest.approx(1.01e6)
    }  # fmt: skip
    assert plain[name]["peak_memory_bytes"] == {"value": 4096.0}
    assert all(set(v) <= {"value", "lower_value", "upper_value"} for m in plain.values() for v in m.values())


def test_github_action_benchmark(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "gab.json"
    assert write(store, "github-action-benchmark", None, str(out)) == 3
    entries = json.loads(out.read_text())
    assert all(set(e) <= {"name", "unit", "value", "range", "extra"} for e in entries)
    first = next(e for e in entries if e["name"].endswith(" latency_s"))
    assert (first["unit"], first["value"], first["range"]) == ("ns", pytest.approx(1e6), "± 10000")
    assert write(store, "github-action-benchmark-higher", None, str(out)) == 1
    assert json.loads(out.read_text())[0]["value"] == 2e9
    with pytest.raises(InputError, match="no metric of which higher is better"):
        write(store, "github-action-benchmark-higher", "run-000", str(out))


def test_parquet_holds_every_metric_of_every_run(store: Store, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    out = tmp_path / "all.parquet"
    assert write(store, "parquet", None, str(out)) == 2 + 2 + 1 + 2
    table = pq.read_table(out).to_pylist()
    assert {r["run"] for r in table} == {"run-000", "run-001"}
    failed = next(r for r in table if r["status"] == "crashed")
    assert (failed["metric"], failed["value"], failed["detail"]) == (None, None, "=1+1")
    rate = next(r for r in table if r["metric"] == "flops_per_s")
    assert (rate["value"], rate["low"], rate["high"], rate["n"], rate["better"]) == (2e9, 1e9, 3e9, 5, "higher")
    assert json.loads(rate["params"]) == {"n": 1, "text": "@SUM(1)"}
    with pytest.raises(InputError, match="name a file"):
        write(store, "parquet", None, "-")


def test_csv_is_harmless_and_comes_back(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "run.csv"
    assert write(store, "csv", None, str(out)) == 3
    with out.open(newline="", encoding="utf-8") as file:
        cells = [c for row in csv.reader(file) for c in row]
    assert not any(c.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) for c in cells)
    with open_store(tmp_path / "back.db") as back:
        report = import_paths(back, [out])
        assert (report["taken"], report["reasons"]) == (2, {"status crashed": 1})
        there = {m.case.benchmark: m for m in measurements_of_run(back, runs(back)[0].id)}
    evil = there['=HYPERLINK("x")']
    assert (evil.case.operation, evil.case.backend) == ("+op", "-cmd|' /C'!A0")
    assert evil.case.params == {"n": 1, "text": "@SUM(1)"}
    assert evil.metrics["flops_per_s"].low == 1e9 and there["prefill"].metrics["latency_s"].value == 1e-3


def attnwatch(*args: str) -> subprocess.CompletedProcess[str]:
    """A command, finished."""
    return subprocess.run([sys.executable, "-m", "harness.cli", *args], capture_output=True, check=False, text=True)


def test_the_command(store: Store, tmp_path: Path) -> None:
    db = str(tmp_path / "s.db")
    wrong = attnwatch("export", "--db", db, "--format", "xml")
    assert wrong.returncode == 2 and "--format: 'xml' is none of csv, json, asv" in wrong.stderr
    done = attnwatch("export", "--db", db, "--format", "asv", "--out", str(tmp_path / "asv"), "--json")
    assert done.returncode == 0 and json.loads(done.stdout) == {"out": str(tmp_path / "asv"), "rows": 6}
