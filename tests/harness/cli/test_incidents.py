"""detect, explain ID, triage and confirm on a store that holds an incident."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.judge.test_nights import SLOW, World, odd, slower
from tests.harness.judge.test_nights import world as world  # the fixture

pytestmark = pytest.mark.usefixtures("world")


def run(world: World, *args: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness.cli", *args, "--db", str(world.folder / "n.db")]
    env = {**os.environ, "ATTNWATCH_RUNTIME_DIR": str(world.folder / "rt")}  # other sweeps of this machine are not ours
    done = subprocess.run(command, cwd=world.folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == expect, done.stdout + done.stderr
    return done


def test_an_empty_store_has_nothing_to_tell(world: World) -> None:
    assert json.loads(run(world, "detect", "--json").stdout) == {"incidents": [], "overdue": []}


@pytest.mark.slow
def test_the_life_of_an_incident(world: World, tmp_path: Path) -> None:
    world.cost = slower(lambda case, kernels, torch: odd(case) and kernels == "b")
    for kernels in "aab":
        world.night(kernels)
    listed = json.loads(run(world, "detect", "--json", expect=1).stdout)["incidents"]
    assert len(listed) == 1
    known = listed[0]
    assert known["cases"] == len(SLOW)
    assert known["id"] in run(world, "detect", expect=1).stdout
    told = json.loads(run(world, "explain", known["id"], "--json").stdout)
    hit = [c for t in told["triggers"] for c in t["combinations"]] + told["unexplained"]
    assert {(c["backend"], c["kv_len"]) for c in hit} == SLOW
    run(world, "triage", known["id"], "acknowledged", "--reason", "looking at it", "--owner", "someone")
    after = json.loads(run(world, "detect", "--json").stdout)["incidents"]
    assert (after[0]["state"], after[0]["owner"]) == ("acknowledged", "someone")
    assert "cannot become" in run(world, "triage", known["id"], "suspect", "--reason", "x", expect=2).stderr
    assert "needs a reason" in run(world, "triage", known["id"], "fixed", "--reason", " ", expect=2).stderr
    for command in (("explain",), ("confirm",), ("bisect",), ("triage",)):
        rest = ("fixed", "--reason", "x") if command == ("triage",) else ()
        assert "no incident 'nosuch'" in run(world, *command, "nosuch", *rest, expect=2).stderr
    assert "ID of an incident, or --csv" in run(world, "explain", expect=2).stderr
