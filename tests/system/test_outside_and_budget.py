"""A night over asv's suites and those of others at once, and a night that is too short for them."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.harness.outside import install

from .conftest import Clone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TINY = """
from benchmarks import SUITE, backends_of
from harness.model.suite import Question, grid

QUESTION = Question("tiny", "attention", {"ours_at_work": grid("attention", seq_len=32, heads_q=2, head_dim=16)},
                    backends_of("attention"))

attn_latency = QUESTION.benchmark(SUITE)
"""


@pytest.fixture
def night(small_clone: Clone) -> Clone:
    """A clone with one small question of its own, and a distribution of others beside it."""
    (small_clone.repo / "benchmarks" / "tiny.py").write_text(TINY)
    small_clone.git("add", "-A")
    small_clone.git("commit", "-q", "-m", "tiny")
    small_clone.env["PYTHONPATH"] = str(install(small_clone.repo.parent / "site", broken=False))
    return small_clone


def nightly(clone: Clone, *args: str) -> dict[str, Any]:
    done = clone.run("nightly", "--suite", "ours_at_work", "--device", "cpu", "--json", *args)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def rows(report: dict[str, Any], clone: Clone) -> list[dict[str, Any]]:
    """Measurements of the bundle that the report was made from."""
    bundle = clone.repo / ".asv" / "nightly" / "bundles" / "archive" / Path(report["bundle"]).name
    lines = [json.loads(line) for line in bundle.read_bytes().splitlines()]
    assert {line["id"] for line in lines if line["kind"] == "run"} == {report["run_id"]}
    return [line for line in lines if line["kind"] == "measurement"]


def test_suites_and_backends_of_others_are_part_of_the_night(night: Clone) -> None:
    report = nightly(night)
    found = rows(report, night)
    ok = {(r["case"]["benchmark"], r["case"]["backend"]) for r in found if r["status"] == "ok"}
    assert {("tiny", "at_work"), ("tiny", "sdpa_math"), ("served", "at_work"), ("served", "sdpa_math")} <= ok
    places = {r["case"]["benchmark"]: r["telemetry"]["kernels_path"] for r in found if r["status"] == "ok"}
    assert os.fspath(night.repo / ".asv" / "env") in places["tiny"], "asv ran ours"
    # What asv does not read is measured after it, with the kernels of the same commit.
    assert ".asv" not in places["served"]
    assert len({r["telemetry"]["kernels_hash"] for r in found if r["status"] == "ok"}) == 1
    assert sum(report["counts"].values()) == len({json.dumps(r["case"]) for r in found})


def test_a_night_that_is_too_short_keeps_the_reasons_and_the_next_one_begins_with_the_rest(night: Clone) -> None:
    short = nightly(night, "--budget", "1s")
    assert short["counts"]["deselected"] > 0
    assert any("for the next night" in n for n in short["notes"]), short["notes"]
    left = [r for r in rows(short, night) if r["status"] == "deselected"]
    assert all("next night" in r["detail"] for r in left)
    whole = nightly(night)
    assert "deselected" not in whole["counts"]
    counts = Counter(r["status"] for r in rows(whole, night))
    assert counts["ok"] >= 6
    assert whole["missing"] == [], "being left out is no gap in coverage"
