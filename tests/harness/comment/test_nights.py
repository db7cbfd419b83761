"""From a store with incidents to a comment."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from db.engine import open_store
from db.repository import triage
from harness.comment.facts import State
from harness.comment.nights import from_store
from harness.comment.reading import from_json
from harness.comment.render import render
from harness.jsonout import dumps
from harness.model import InputError, TriageState
from harness.report import as_plain
from tests.harness.judge.test_nights import SLOW, World, odd, slower
from tests.harness.judge.test_nights import world as world  # the fixture

pytestmark = pytest.mark.usefixtures("world")


def test_an_empty_store_has_no_run(world: World) -> None:
    with open_store(str(world.folder / "n.db")) as store, pytest.raises(InputError, match="no run yet"):
        from_store(store)


@pytest.mark.slow
def test_a_night_is_told_the_same_from_its_report_and_from_the_store(world: World) -> None:
    world.cost = slower(lambda case, kernels, torch: odd(case) and kernels == "b")
    for kernels in "aa":
        world.night(kernels)
    report = world.night("b")
    with open_store(str(world.folder / "n.db")) as store:
        stored = from_store(store)
        earlier = from_store(store, report.base_run)
        with pytest.raises(InputError, match="no run 'nosuch'"):
            from_store(store, "nosuch")
    told = from_json(dumps(as_plain(report)), "r")
    assert stored.state is told.state is State.ADVERSE
    assert earlier.state is State.CLEAN
    for facts in (stored, told):
        (group,) = facts.groups
        assert group.confirmed and group.kind == "slower" and len(group.changes) == len(SLOW)
        assert group.incident == report.incidents[0].id and group.trigger == report.incidents[0].trigger
    assert stored.groups[0].hit == told.groups[0].hit == len(SLOW)
    assert report.incidents[0].id in render(stored)
    command = [
        sys.executable,
        "-m",
        "harness.cli",
        "comment",
        "--dry-run",
        "--json",
        "--db",
        str(world.folder / "n.db"),
    ]
    done = subprocess.run(command, cwd=world.folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["state"] == "adverse"
    with open_store(str(world.folder / "n.db")) as store:
        triage(store, report.incidents[0].id, TriageState.ACKNOWLEDGED, "seen", "a team")
        seen = from_store(store)
    assert seen.groups == () and seen.known == (report.incidents[0].id,)
