"""SIGKILL at seeded moments of a nightly: the next run completes and the store equals an undisturbed one's."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import Clone, make_clone

pytestmark = [pytest.mark.scale, pytest.mark.timeout(2400)]

ARGS = ("nightly", "--suite", "mini.suite.json", "--device", "cpu", "--json")
#: Twenty fit into the time of all scale tests; ATTNWATCH_KILLS takes another number.
MOMENTS = int(os.environ.get("ATTNWATCH_KILLS", "20"))


def contents(db: Path) -> dict[str, Any]:
    """What a store holds, less times and ids: per run its completeness and the status of each case."""
    with sqlite3.connect(db) as connection:
        runs = connection.execute("select id, complete, planned from run order by id").fetchall()
        query = (
            'select "case".label, "case".backend, measurement.status, count(*) from measurement '
            'join "case" on "case".id = measurement.case_id where run_id = ? and not superseded '
            'group by "case".id, measurement.status order by 1, 2'
        )
        rows = [(complete, planned, connection.execute(query, (i,)).fetchall()) for i, complete, planned in runs]
        assert connection.execute("pragma integrity_check").fetchone()[0] == "ok"
        assert connection.execute("pragma foreign_key_check").fetchall() == []
        doubled = "select 1 from measurement group by run_id, case_id, attempt having count(*) > 1"
        assert connection.execute(doubled).fetchall() == []
    return {"runs": rows}


def kill_everything(clone: Clone, process: subprocess.Popen[str]) -> None:
    """The whole session of the nightly, as a machine that loses power would."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)


def test_killed_at_seeded_moments(tmp_path: Path) -> None:
    calm = make_clone(tmp_path / "calm", [256])
    began = time.monotonic()
    calm.nightly()
    lasted = time.monotonic() - began
    expected = contents(calm.db)["runs"]
    random.seed(20)
    clone = make_clone(tmp_path / "killed", [256])
    completed = 0
    for moment in range(MOMENTS):
        process = clone.start(*ARGS)
        time.sleep(random.uniform(0.05, 1.0) * lasted)
        if process.poll() is None:
            kill_everything(clone, process)
        else:
            process.communicate()
            assert process.returncode in (0, 1)
            completed += 1
        report = clone.nightly(expect=0) if moment % 5 == 4 else None
        if report is not None:
            completed += 1
            held = contents(clone.db)["runs"]
            assert all(run == expected[0] for run in held), f"after moment {moment}"
    clone.nightly()
    held = contents(clone.db)["runs"]
    assert all(run == expected[0] for run in held)
    assert len(held) >= MOMENTS // 5 + 1
