"""Candidates and cases of a bisection of any repository: real commits, a real program, a report as it is printed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.ab_report import ab_report
from harness.bisecting import CASES, adverse_cases, by_side
from harness.model import Case, InfrastructureError, InputError, Workload
from tests.harness.comment.samples import row


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    for args in (["init", "-q", "-b", "main"], *(["commit", "-q", "--allow-empty", "-m", f"c{i}"] for i in range(4))):
        who = ["-c", "user.name=t", "-c", "user.email=t@t"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *args], check=True, capture_output=True)
    return tmp_path


def program(folder: Path, text: str) -> str:
    path = folder / "side.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_all_commits_after_the_good_one_are_candidates(repo: Path) -> None:
    side = program(repo, 'echo "building $1"; echo "/envs/$1/bin/python"')
    found = by_side(repo, "HEAD~2", "HEAD", side, "cpu")
    assert [c.text.split()[1] for c in found] == ["good", "c2", "c3"]
    spec = found[1].spec()
    assert spec.python == f"/envs/{found[1].name}/bin/python" and spec.kernels is None and len(found[1].name) == 40


@pytest.mark.parametrize("text", ["exit 4", "true", "echo /x; exit 1"])
def test_what_cannot_be_built_is_for_the_search_to_skip(repo: Path, text: str) -> None:
    found = by_side(repo, "HEAD~1", "HEAD", program(repo, text), "cpu")
    with pytest.raises(InfrastructureError, match="cannot be built"):
        found[1].spec()


def test_ends_and_programs_that_are_none(repo: Path) -> None:
    with pytest.raises(InputError, match="no commit lies between"):
        by_side(repo, "HEAD", "HEAD~1", "x", "cpu")
    with pytest.raises(InputError, match="no-such"):
        by_side(repo, "no-such", "HEAD", "x", "cpu")
    with pytest.raises(InputError, match="--side: /no/such/program"):
        by_side(repo, "HEAD~1", "HEAD", "/no/such/program", "cpu")[0].spec()


def write(folder: Path, rows: list[dict[str, Any]]) -> str:
    plain = {"base": "a", "head": "b", **ab_report([]), "cases": rows, "left_out": []}
    path = folder / "report.json"
    path.write_text(json.dumps(plain))
    return str(path)


def case_of(columns: dict[str, Any]) -> Case:
    held = {k: v for k, v in columns.items() if k in ("batch", "q_len", "kv_len", "head_dim", "dtype", "causal")}
    return Case(columns["benchmark"], Workload(columns["operation"], held), columns["backend"])


def test_the_clearest_cases_of_a_report_are_searched(tmp_path: Path) -> None:
    ratios = {128: 1.2, 256: 3.0, 384: 1.5, 512: 2.0, 640: None}
    rows = [row(n, ratio=r, verdict="slower") if r else row(n) for n, r in ratios.items()]
    cases = [case_of(r) for r in rows]
    found, status = adverse_cases(cases, write(tmp_path, rows))
    assert [c.workload.params["kv_len"] for c in found] == [256, 512, 384] and not status and len(found) == CASES
    found, _ = adverse_cases(cases[:1], write(tmp_path, rows))
    assert [c.workload.params["kv_len"] for c in found] == [128], "only what the suite holds"
    with pytest.raises(InputError, match="no case of the suite is slower in it"):
        adverse_cases(cases, write(tmp_path, [row(128)]))


def test_what_broke_is_searched_by_its_status(tmp_path: Path) -> None:
    broke = row(128, verdict=None, ratio=None, head_status="crashed")
    found, status = adverse_cases([case_of(broke)], write(tmp_path, [broke, row(256)]))
    assert status and len(found) == 1
