"""CSV of long and wide form: runs, series, units, and every cell accounted for."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.engine import Store, open_store
from db.queries import MeasurementRow, measurements_of_run, runs
from harness.imports import check_paths, import_paths
from harness.model import InputError


def table(tmp_path: Path, text: str, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def rows(store: Store) -> list[MeasurementRow]:
    found = sorted(runs(store), key=lambda r: r.started_at)
    return [m for r in found for m in measurements_of_run(store, r.id)]


def test_series_without_times_stand_side_by_side(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.db") as store:
        path = table(tmp_path, "series,value\na,1\nb,10\na,2\nb,\nb,30\n")
        report = import_paths(store, [path])
        assert (report["taken"], report["dropped"], len(report["runs"])) == (4, 1, 3)
        assert [(m.case.benchmark, m.metrics["value"].value) for m in rows(store)] == [
            ("a", 1.0), ("b", 10.0), ("a", 2.0), ("b", 30.0),
        ]  # fmt: skip
        table(tmp_path, "series,value\na,1\nb,10\na,2\nb,\nb,30\nb,40\n")
        assert import_paths(store, [path])["taken"] == 1, "what was appended"


def test_times_commits_machines_units_and_parameters(tmp_path: Path) -> None:
    text = (
        "benchmark,backend,n,unit,better,value,date,commit,machine\n"
        "x,cpu,1,ms,,5,2024-05-01T00:00:00Z,1111111,m1\n"
        "x,cpu,2,ms,,6,2024-05-01T00:00:00Z,1111111,m1\n"
        "x,cpu,1,ms,,7,1714608000000,2222222,m1\n"
        "y,cpu,1,points,higher,8,2024-05-01T00:00:00Z,1111111,m2\n"
    )
    with open_store(tmp_path / "s.db") as store:
        report = import_paths(store, [table(tmp_path, text)])
        assert report["taken"] == 4
        held = {(r.commit, r.device_model, r.started_at) for r in runs(store)}
        assert held == {
            ("1111111", "m1", 1714521600.0),
            ("2222222", "m1", 1714608000.0),
            ("1111111", "m2", 1714521600.0),
        }
        found = {(m.case.benchmark, m.case.label): m.metrics for m in rows(store)}
        assert found["x", "n=2"]["latency_s"].value == pytest.approx(6e-3)
        assert found["y", "n=1"]["value_points_higher"].value == 8


def test_one_row_per_case_with_columns_of_metrics(tmp_path: Path) -> None:
    text = (
        "backend,q_len,dtype,latency_ms,peak_memory_mb,status\n"
        "flash,128,float16,0.5,12,ok\nflash,256,int8,oom,,ok\nsdpa,128,float16,0,1,ok\nsdpa,256,int8,1,1,crashed\n"
    )
    with open_store(tmp_path / "s.db") as store:
        report = import_paths(store, [table(tmp_path, text, "attention.csv")])
        assert report["taken"] == 2
        assert report["reasons"] == {
            "the value is empty or not a finite number": 1, "a time of 0 or less": 1, "status crashed": 1
        }  # fmt: skip
        first = rows(store)[0]
        assert (first.case.benchmark, first.case.backend) == ("attention", "flash")
        assert first.case.params == {"q_len": 128, "dtype_": "float16"}
        assert {k: v.value for k, v in first.metrics.items()} == {"latency_s": 0.0005, "peak_memory_bytes": 12e6}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("series,value,time\na,1,never\n", r"t.csv:2: column 'time': 'never' is neither a number nor"),
        ("series,value,better\na,1,left\n", r"t.csv:2: column 'better': must be lower or higher"),
        ("series,value\na,1,2\n", r"t.csv:2: 3 cells where the header has 2"),
        ("case,side,value\na,base,1\n", r"t.csv: not of a format"),
        ("n,regressed,latency_s\n1,0,1\n", r"t.csv: not of a format"),
        ("a,b\n1,2\n", r"t.csv: not of a format"),
    ],
)
def test_errors_name_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_paths([table(tmp_path, text)])
