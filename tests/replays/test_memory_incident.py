"""The faults of the batch-memory incident, each put in for real: flagged, with the exact trigger, as what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.engine import open_store
from db.queries import incidents
from harness.catalogue.memory_replays import REPLAYS
from harness.catalogue.replays import Replay, rows_where, run
from kernels.faults import FAULTS

# `make bench-incidents` replays the one that runs out of memory too; here a bench does that in its own process
# (tests/harness/measuring/test_allocations.py).
MINE = [r for r in REPLAYS if r.fault != "step_over_limit"]


@pytest.fixture(autouse=True)
def one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNWATCH_RUNTIME_DIR", str(tmp_path / "rt"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.slow
@pytest.mark.parametrize("one", MINE, ids=lambda r: f"{r.row}-{r.fault}")
def test_the_fault_is_flagged_with_its_exact_trigger(one: Replay, tmp_path: Path) -> None:
    fault = FAULTS[one.fault]
    folder = tmp_path / "first"
    got = run(one, fault.backend, fault.trigger, folder)
    if not got.exact:
        # Beside other work a timed finding may join the counted ones; the next night asks again.
        folder = tmp_path / "second"
        got = run(one, fault.backend, fault.trigger, folder)
    assert got.flagged and got.exact, (got.said, got)
    with open_store(folder / "replay.db", read_only=True) as store:
        (found,) = [i for i in incidents(store) if i.state == "new"]
    changes = found.evidence["what_changed"]
    assert any("ATTNWATCH_FAULTS" in c and one.fault in c for c in changes), (
        "the changed variable is among the suspects"
    )
    if one.fault == "step_quadratic":
        (growth,) = found.evidence["growth"]
        assert growth.startswith("seq_len^1.") and "-> seq_len^" in growth
        assert float(growth.rpartition("^")[2].split()[0]) > 1.7, "a silent fall to a quadratic path"
        assert growth in found.title


def test_every_replay_has_a_fault_and_covers_both_sides_of_its_trigger() -> None:
    for one in REPLAYS:
        fault, cases = FAULTS[one.fault], one.cases()
        inside = rows_where(cases, f"backend == {fault.backend!r} and {fault.trigger}")
        assert 0 < len(inside) < len(cases)
        assert {c.workload.operation for c in cases} == {fault.operation}
