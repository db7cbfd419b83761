"""Every file shown on the page of files does what the page says of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.cli.app import app
from harness.suites import suite_names

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "files.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```(?:csv|jsonl) (\S+)\n(.*?)```", PAGE, re.DOTALL))


def told(tmp_path: Path, name: str, *command: str, expect: int) -> object:
    """JSON of a command on a file of the page."""
    path = tmp_path / name
    path.write_text(FILES[name], encoding="utf-8")
    done = CliRunner().invoke(app, [*command, str(path), "--json"])
    assert done.exit_code == expect, done.output
    return json.loads(done.stdout)


def test_every_suite_is_on_the_page() -> None:
    assert set(re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE)) == set(suite_names())


@pytest.mark.parametrize(("name", "workloads"), [("calls.csv", 3), ("calls.jsonl", 2)])
def test_a_log_of_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, workloads: int) -> None:
    monkeypatch.chdir(tmp_path)
    told(tmp_path, name, "workload", "import", expect=0)
    suite = json.loads((tmp_path / "calls.suite.json").read_text())
    assert len(suite["workloads"]) == workloads
    assert suite["workloads"][0]["weight"] == 90000


def test_combinations(tmp_path: Path) -> None:
    got = told(tmp_path, "combinations.csv", "explain", "--csv", expect=0)
    assert [t["text"] for t in got["triggers"]] == ["backend == 'flash' and kv_len % 128 != 0"]  # type: ignore[index]


def test_series(tmp_path: Path) -> None:
    got = told(tmp_path, "series.csv", "detect", "--csv", expect=1)
    (change,) = got["series"]["decode"]["change_points"]  # type: ignore[index]
    assert change["index"] == 4


def test_samples(tmp_path: Path) -> None:
    got = told(tmp_path, "samples.csv", "compare", "--csv", expect=1)
    assert got["cases"]["decode"]["verdict"] == "slower"  # type: ignore[index]
