"""``attnwatch explain --csv``: the contract of the JSON, and input that is not as it should be."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.explain_csv import explain_csv
from harness.model import InputError

from .oracle import evaluate
from .test_recovery import PREDICATES, table


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "t.csv"
    path.write_text(text)
    return str(path)


def write_table(tmp_path: Path, rows: list[dict[str, Any]], **outcome: list[Any]) -> str:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*rows[0], *outcome])
        for i, row in enumerate(rows):
            writer.writerow([*row.values(), *(v[i] for v in outcome.values())])
    return str(path)


def test_contract(tmp_path: Path) -> None:
    rows, truth = table(PREDICATES[0], 500, 1)
    report = explain_csv(write_table(tmp_path, rows, regressed=truth.astype(int).tolist()))
    (trigger,) = report["triggers"]
    assert trigger["text"] == PREDICATES[0]
    assert {"feature": "kv_len % 128", "op": "!=", "value": 0} in trigger["predicate"]
    assert {"feature": "backend", "op": "==", "value": "flash_attn"} in trigger["predicate"]
    hit = int(truth.sum())
    counts = [trigger[k] for k in ("regressed_inside", "inside", "regressed_total", "total")]
    assert counts == [hit, hit, hit, 500]
    assert trigger["effect"] is None
    assert trigger["combinations"] == [r for r, t in zip(rows, truth, strict=True) if t]
    assert report["unexplained"] == []
    assert all([evaluate(a, r) for r in rows] == truth.tolist() for a in trigger["alternatives"])
    json.dumps(report, allow_nan=False)


def test_ratio_with_standard_errors(tmp_path: Path) -> None:
    rows, truth = table(PREDICATES[1], 500, 2)
    ratio = np.exp(0.02 * np.random.default_rng(3).standard_normal(500) + math.log(1.2) * truth)
    path = write_table(tmp_path, rows, ratio=ratio.tolist(), ratio_se=(0.02 * ratio).tolist())
    (trigger,) = explain_csv(path)["triggers"]
    assert [evaluate(trigger["text"], r) for r in rows] == truth.tolist()
    assert trigger["effect"] == pytest.approx(1.2, abs=0.01)
    assert trigger["effect_ci"][0] < 1.2 < trigger["effect_ci"][1]
    assert all(f["feature"] not in ("ratio", "ratio_se") for f in trigger["predicate"])
    assert trigger["regressed_inside"] >= 0.98 * trigger["inside"]


def test_empty_ratios_are_left_out(tmp_path: Path) -> None:
    rows, truth = table("q_len == 1", 200, 4)
    ratio: list[Any] = np.where(truth, 1.3, 1.0).tolist()
    ratio[0] = ""
    report = explain_csv(write_table(tmp_path, rows, ratio=ratio))
    assert [t["text"] for t in report["triggers"]] == ["q_len == 1"]
    assert report["triggers"][0]["total"] == 199, "a row without a ratio takes no part"


def test_words_for_truth(tmp_path: Path) -> None:
    words = ["true", "1", "YES", "True"]
    other = ["false", "0", "no", "False"]
    lines = [f"{i % 3},{(words if i % 3 == 1 else other)[i % 4]}" for i in range(60)]
    (trigger,) = explain_csv(write(tmp_path, "batch,regressed\n" + "\n".join(lines)))["triggers"]
    assert trigger["text"] == "batch == 1"
    assert trigger["regressed_inside"] == 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", r"t\.csv:1: no column 'regressed' or 'ratio'"),
        ("a,regressed\n", r"t\.csv:2: no rows"),
        ("a,regressed\n1,0\n2,maybe\n", r"t\.csv:3: column 'regressed': 'maybe' is neither"),
        ("a,regressed\n1,0\n2,\n", r"t\.csv:3: column 'regressed': is empty"),
        ("a,ratio\n1,1.0\n2,x\n", r"t\.csv:3: column 'ratio': 'x' is no number"),
        ("a,ratio\n1,1.0\n2,-1\n", r"t\.csv:3: column 'ratio': -1 is no ratio"),
        ("a,ratio\n1,1.0\n2,inf\n", r"t\.csv:3: column 'ratio': inf is no ratio"),
        ("a,ratio\n1,\n2,\n", r"t\.csv:2: column 'ratio': every cell is empty"),
        ("a,ratio,ratio_se\n1,1,0.1\n2,1,-2\n", r"t\.csv:3: column 'ratio_se': -2 is no standard error"),
        ("", r"t\.csv:1: empty"),
    ],
)
def test_bad_input_names_the_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        explain_csv(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,regressed\n1,0\n2,0\n", []),
        ("a,regressed\n1,1\n2,1\n", ["True"]),
        ("a,regressed\n1,1\n", ["True"]),
        ("a,regressed\n1,0\n", []),
        ("regressed\n1\n0\n", []),
        ("a,regressed\n1,1\n1,0\n1,1\n1,0\n", []),
        ("a,ratio\n1,1.01\n", []),
        ("a,ratio\n1,1\n2,1\n3,1\n4,1\n5,1\n", []),
        ("a,regressed\n,1\n,0\n", []),
    ],
)
def test_degenerate_tables(tmp_path: Path, text: str, said: list[str]) -> None:
    report = explain_csv(write(tmp_path, text))
    assert [t["text"] for t in report["triggers"]] == said
    json.dumps(report, allow_nan=False)


def test_the_command(tmp_path: Path) -> None:
    rows, truth = table("q_len == 1", 150, 5)
    path = write_table(tmp_path, rows, regressed=truth.astype(int).tolist())
    command = [sys.executable, "-m", "harness.cli", "explain", "--csv"]
    done = subprocess.run([*command, path, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["triggers"][0]["text"] == "q_len == 1"
    done = subprocess.run([*command, "-"], input=Path(path).read_text(), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("q_len == 1\n")
    assert f"{truth.sum()} of {truth.sum()} regressed inside, 0 of" in done.stdout
    bad = subprocess.run([*command, str(tmp_path / "none.csv")], capture_output=True, text=True)
    assert bad.returncode == 2
    assert "none.csv: no such file" in bad.stderr
    assert subprocess.run(command[:-1], capture_output=True).returncode == 2
