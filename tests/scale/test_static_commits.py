"""The grid of a pull request over two commits of our kernels, through the store: a change is told with its trigger."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.engine import open_store
from db.queries import incidents, runs
from harness.static.compiling import TARGETS, records, source
from tests.harness.static.commits import planted, static
from tests.harness.static.samples import check_shipped

pytestmark = [pytest.mark.scale, pytest.mark.timeout(1200)]


def test_a_planted_change_is_named_over_the_whole_grid(tmp_path: Path) -> None:
    repo, db = planted(tmp_path), str(tmp_path / "s.db")
    first = static(repo, "--head", "HEAD~1", "--db", db)
    assert first["incidents"] == [] and first["counts"]["ok"] > 80 and set(first["counts"]) == {"ok"}
    second = static(repo, "--head", "HEAD", "--db", db, expect=1)
    (found,) = second["incidents"]
    assert "head_dim == 128" in found["trigger"] and found["base_commit"] != found["head_commit"]
    plain = [f for f in found["findings"] if f["metric"] == "occupancy"]
    shapes = {(p["dtype"], p["causal"], p["heads_q"]) for p in (f["case"]["workload"]["params"] for f in plain)}
    assert shapes == {(d, c, h) for d in ("float16", "bfloat16") for c in (True, False) for h in (8, 32)}
    # What is kept by content serves whichever revision asks for it.
    kept = len(list((tmp_path / "rt" / "static").glob("*.json")))
    assert static(repo, "--base", "HEAD", "--head", "HEAD~1")["incidents"] == []
    assert len(list((tmp_path / "rt" / "static").glob("*.json"))) == kept
    with open_store(db, read_only=True) as store:
        assert [i.id for i in incidents(store)] == [found["id"]]
        assert {r.device_model for r in runs(store)} == {"sm_90"} and len(runs(store)) == 2


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_that_ships_spills_and_matrix_instructions_are_the_strongest(target: int) -> None:
    for record in records(source("kernels.triton_support.shipped:launches"), [target]):
        check_shipped(record)
