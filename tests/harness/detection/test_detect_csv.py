"""``attnwatch detect --csv``: the contract, exit codes and bad input, through the command."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from harness.cli import main
from scripts.study.nights import suite


def write(path: Path, columns: dict[str, np.ndarray], extra: str = "") -> Path:
    """Rows in order of time, series alternating."""
    out = io.StringIO()
    rows = csv.writer(out)
    rows.writerow(["series", "value", *(["better"] if extra else [])])
    for t in range(max(map(len, columns.values()))):
        for name, y in columns.items():
            if t < len(y):
                rows.writerow([name, "" if np.isnan(y[t]) else repr(float(y[t])), *([extra] if extra else [])])
    path.write_text(out.getvalue(), encoding="utf-8")
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setattr("sys.argv", ["attnwatch", "detect", *words])
        main()
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def step(at: int, n: int = 90, ratio: float = 1.08, seed: int = 0) -> np.ndarray:
    y = np.exp(suite("gaussian", 1, n, np.random.default_rng(seed)))[0]
    y[at:] *= ratio
    return y


def test_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    y = step(45)
    y[10] = np.nan
    path = write(tmp_path / "a.csv", {"one, two": y, "flat": np.full(20, 7.0), "signed": step(45) - y[5]})
    code, out, _ = run(capsys, "--csv", str(path), "--json")
    series = json.loads(out)["series"]
    assert code == 0
    assert set(series) == {"one, two", "flat", "signed"}
    one = series["one, two"]
    (change,) = one["change_points"]
    assert (one["n"], one["gaps"], one["scale"]) == (90, 1, "log")
    assert abs(change["index"] - 45) <= 1
    assert change["ratio_ci"][0] < change["ratio"] < change["ratio_ci"][1]
    assert change["after"] / change["before"] == pytest.approx(change["ratio"])
    assert (change["verdict"], change["state"]) == ("slower", "historical")
    assert 0.99 < change["confidence"] <= 1
    assert series["flat"] == {"n": 20, "gaps": 0, "scale": "log", "change_points": []}
    assert series["signed"]["scale"] == "linear"
    assert series["signed"]["change_points"][0]["ratio"] is None
    assert series["signed"]["change_points"][0]["ratio_ci"] is None


def test_newest_nights_are_suspects_and_end_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.csv", {"a": step(84), "b": step(200)})
    code, out, _ = run(capsys, "--csv", str(path), "--json")
    assert code == 1
    assert [c["state"] for c in json.loads(out)["series"]["a"]["change_points"]] == ["suspect"]
    path = write(tmp_path / "b.csv", {"a": step(84)}, extra="higher")
    code, out, _ = run(capsys, "--csv", str(path), "--json")
    assert code == 0
    assert json.loads(out)["series"]["a"]["change_points"][0]["verdict"] == "faster"


def test_pool_sees_a_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.exp(suite("gaussian", 100, 65, np.random.default_rng(1)))
    x[:20, 60:] *= 1.02
    path = write(tmp_path / "a.csv", {f"s{i}": row for i, row in enumerate(x)})
    found = {}
    for words in ((), ("--pool",)):
        _, out, _ = run(capsys, "--csv", str(path), "--json", *words)
        series = json.loads(out)["series"]
        found[words] = sum(bool(series[f"s{i}"]["change_points"]) for i in range(20))
    assert found["--pool",] >= 17
    assert found[()] <= 8


def test_table_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--csv", str(write(tmp_path / "a.csv", {"a": step(84), "z": step(45) - step(45)[5]})))
    assert code == 1
    assert out.startswith("slower")
    assert "2 series, 2 with changes" in err
    assert "linear scale" in err


@pytest.mark.parametrize(
    ("text", "needles"),
    [
        ("", ["a.csv:1", "empty"]),
        ("series,value\n", ["no rows"]),
        ("name,value\na,1\n", ["no column 'series'"]),
        ("series,value\na,1\na,fast\n", ["a.csv:3", "'value'", "'fast'"]),
        ("series,value\n,1\n", ["a.csv:2", "'series'", "empty"]),
        ("series,value,time\na,1,2\na,1,1\n", ["a.csv:3", "'time'", "earlier"]),
        ("series,value,time\na,1,2\nb,1,1\na,1,2\n", ["a.csv:4", "'time'", "twice"]),
        ("series,value,time\na,1,2024-01-02\na,1,2024-01-01T10:00:00Z\n", ["a.csv:3", "earlier"]),
        ("series,value,time\na,1,soon\na,2,later\n", ["a.csv:2", "'soon'", "ISO 8601"]),
        ("series,value,time\na,1,\n", ["a.csv:2", "'time'", "empty"]),
        ("series,value,better\na,1,lower\na,1,higher\n", ["a.csv:3", "'better'", "earlier row"]),
        ("series,value,better\na,1,bigger\n", ["a.csv:2", "'better'", "bigger"]),
        ("series,value,unit\na,1,s\na,1,ms\n", ["a.csv:3", "'unit'", "'ms'"]),
    ],
)
def test_bad_input_names_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, needles: list[str]
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    code, out, err = run(capsys, "--csv", str(path))
    assert code == 2
    assert out == ""
    for needle in needles:
        assert needle in err


@pytest.mark.parametrize("value", ["1", "0", "-3", "nan", "inf", "", "1e308"])
def test_one_point_and_odd_values_are_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"series,value\na,{value}\nb,{value}\nb,{value}\n", encoding="utf-8")
    code, out, _ = run(capsys, "--csv", str(path), "--json")
    assert code == 0
    assert json.loads(out)["series"]["b"]["n"] == 2
    assert "NaN" not in out and "Infinity" not in out


@pytest.mark.scale
def test_a_million_points_and_a_hundred_thousand_series() -> None:
    from harness.detection.changes import detect

    rng = np.random.default_rng(2)
    long = np.exp(0.01 * rng.normal(size=1_000_000))
    long[600_000:] *= 1.05
    found = detect([long]).changes[0]
    assert any(abs(c.index - 600_000) <= 2 for c in found)
    assert len(found) <= 30
    many = np.exp(0.01 * rng.normal(size=(100_000, 12)))
    assert sum(map(len, detect(list(many), pool=True).changes)) <= 60
