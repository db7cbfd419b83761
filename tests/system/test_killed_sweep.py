"""A nightly that is killed outright: asv ends with it, and the next one finds the machine to itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.harness.workers import eventually

from .conftest import SUITE, Clone
from .test_nightly_faults import stored, wait_for_measurements

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ARGS = ("nightly", "--suite", SUITE, "--device", "cpu", "--json")


def driving(clone: Clone) -> list[str]:
    """Command lines of living processes of asv's that were started in this clone."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if str(clone.repo).encode() in environment and "asv" in command and "boot.py" not in command:
            found.append(f"{folder.name} {command}")
    return found


def test_nothing_of_asv_outlives_a_killed_nightly(small_clone: Clone) -> None:
    process = small_clone.start(*ARGS)
    wait_for_measurements(small_clone, process, 1)
    others = [line for line in driving(small_clone) if not line.startswith(f"{process.pid} ")]
    assert len(others) >= 3, f"minder, asv and a fork server or case: {others}"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert eventually(lambda: not driving(small_clone), 10.0), driving(small_clone)
    report = small_clone.nightly()
    runs = stored(small_clone)
    assert len(runs) == 1 and sum(report["counts"].values()) == runs[0][1]
    assert set(report["counts"]) == {"ok", "unsupported"}, report["counts"]
