"""Faults of the batch-memory incident that need no timing: flagged by the service, with their exact triggers."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.catalogue.replays import Replay, rows_where, run
from harness.catalogue.static_replay import exact, replay_static
from harness.catalogue.step_replays import REPLAYS
from harness.static.bundle import case_of
from kernels.faults import FAULTS

LAUNCHES = "kernels.faults.register_pressure:launches"


@pytest.fixture(autouse=True)
def one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNWATCH_RUNTIME_DIR", str(tmp_path / "rt"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


# Row B9 forks processes for each call and takes longer: tests/scale.
@pytest.mark.slow
@pytest.mark.parametrize("one", [r for r in REPLAYS if r.row != "B9"], ids=lambda r: f"{r.row}-{r.fault}")
def test_the_fault_is_flagged_with_its_exact_trigger(one: Replay, tmp_path: Path) -> None:
    fault = FAULTS[one.fault]
    got = run(one, fault.backend, fault.trigger, tmp_path)
    assert got.flagged, (got.said, got)
    assert got.exact, (got.said, got)


@pytest.mark.slow
def test_register_pressure_shows_in_the_compiled_code(tmp_path: Path) -> None:
    fault = FAULTS["register_pressure"]
    report, held = replay_static(LAUNCHES, fault.name, 90, tmp_path)
    assert exact(report, held, fault.trigger), [i.title for i in report.incidents]
    hit = rows_where([case_of(r) for r in held], fault.trigger)
    assert {(f.case.key, f.metric) for i in report.new_confirmed for f in i.findings} == {(k, "occupancy") for k in hit}
    assert all(r.registers <= 255 for r in held), "a thread has no more"


def test_every_replay_has_a_fault_and_covers_both_sides_of_its_trigger() -> None:
    for one in REPLAYS:
        fault, cases = FAULTS[one.fault], one.cases()
        inside = rows_where(cases, f"backend == {fault.backend!r} and {fault.trigger}")
        assert 0 < len(inside) < len({c.key for c in cases if c.backend == fault.backend}), one
        assert {c.workload.operation for c in cases} == {fault.operation}
