"""The latency incident's servers: faults in one night, each named by itself from what is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.catalogue.replays import rows_where
from harness.catalogue.server_replays import HIDDEN, REPLAYS, TOGETHER
from harness.catalogue.together import run_together
from kernels.faults import FAULTS

KNOWN = {r.fault: f"backend == {FAULTS[r.fault].backend!r} and {FAULTS[r.fault].trigger}" for r in REPLAYS}


@pytest.mark.slow
def test_faults_of_one_night_are_told_apart_and_one_that_another_hides_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNWATCH_RUNTIME_DIR", str(tmp_path / "rt"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    night = run_together(TOGETHER, KNOWN, tmp_path, HIDDEN)
    assert [(t.replay.fault, t.flagged, t.exact) for t in night.told] == [(r.fault, True, True) for r in TOGETHER], (
        night
    )
    assert night.others == []


def test_every_replay_has_a_fault_and_covers_both_sides_of_its_trigger() -> None:
    for one in REPLAYS:
        cases = one.cases()
        assert 0 < len(rows_where(cases, KNOWN[one.fault])) < len({c.key for c in cases})
        assert {c.workload.operation for c in cases} == {FAULTS[one.fault].operation}
