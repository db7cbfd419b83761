"""Exports of a run: CSV that a spreadsheet cannot be attacked with, and JSON that says the same."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from db.engine import open_store
from harness.export import write_csv, write_json
from harness.ingest import ingest_bundle
from harness.model import Case, InfrastructureError, InputError, Status, Value, Workload
from tests.db.factory import make_case, make_measurement, make_run, write_run


def stored(folder: Path) -> Path:
    """A store with two runs; the newer one has a failure and a name that a spreadsheet would compute."""
    bundle = folder / "b.jsonl"
    write_run(bundle, make_run(0), [make_measurement(make_case(0), 2e-3)])
    odd = Case("=cmd|' /C calc'!A1", Workload("attention", {"q_len": 7, "window": 3}), "+1")
    write_run(
        bundle,
        make_run(1),
        [
            make_measurement(make_case(0), 1e-3),
            make_measurement(make_case(1), status=Status.CRASHED, detail='-2 is odd, "quoted"\nsecond line'),
            make_measurement(odd, metrics={"latency_s": Value(5e-4, None, None, 1)}),
        ],
    )
    db = folder / "s.db"
    with open_store(str(db)) as store:
        ingest_bundle(store, bundle)
    return db


def test_csv_holds_every_measurement_of_the_latest_run_and_no_formula(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with open_store(str(stored(tmp_path)), read_only=True) as store:
        assert write_csv(store, None, str(out)) == 3
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [r["status"] for r in rows] == ["ok", "crashed", "ok"]
    assert float(rows[0]["latency_s"]) == 1e-3 and float(rows[0]["latency_s_low"]) < 1e-3
    assert rows[1]["latency_s"] == "" and rows[1]["detail"] == '\'-2 is odd, "quoted"\nsecond line'
    assert (rows[2]["benchmark"], rows[2]["backend"], rows[2]["window"]) == ("'=cmd|' /C calc'!A1", "'+1", "3")
    assert not any(cell.startswith(("=", "+", "-", "@")) for r in rows for cell in r.values())
    assert rows[0]["window"] == "", "a parameter that a case does not have is empty"


def test_json_says_the_same_and_names_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(str(stored(tmp_path)), read_only=True) as store:
        assert write_json(store, "run-000", "-") == 1
        old = json.loads(capsys.readouterr().out)
        assert write_json(store, None, "-") == 3
        new = json.loads(capsys.readouterr().out)
    assert old["run"]["id"] == "run-000" and old["measurements"][0]["metrics"]["latency_s"]["value"] == 2e-3
    assert [m["status"] for m in new["measurements"]] == ["ok", "crashed", "ok"]
    assert new["measurements"][2]["benchmark"].startswith("="), "JSON needs no guard"
    assert new["measurements"][2]["metrics"]["latency_s"] == {"value": 5e-4, "low": None, "high": None, "n": 1}


def test_errors_name_store_run_and_file(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "empty.db")) as store, pytest.raises(InputError, match=r"empty.db: holds no runs"):
        write_csv(store, None, "-")
    with open_store(str(stored(tmp_path)), read_only=True) as store:
        with pytest.raises(InputError, match="no run 'nope'"):
            write_json(store, "nope", "-")
        with pytest.raises(InfrastructureError, match=r"no/such/out.csv: cannot be written"):
            write_csv(store, None, "no/such/out.csv")
