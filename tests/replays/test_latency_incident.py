"""The faults of the latency incident, each put in for real: the service flags what they touch and says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.catalogue.replays import REPLAYS, Replay, flagged_without_fault, run
from kernels.faults import FAULTS

# Row A3 has a module of its own. One fault of a row is enough here; `make bench-incidents` replays all.
MINE = [r for r in REPLAYS if r.row != "A3" and r.fault != "layer_norm_narrow_eps"]


@pytest.fixture(autouse=True)
def one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNWATCH_RUNTIME_DIR", str(tmp_path / "rt"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.slow
@pytest.mark.parametrize("one", [r for r in MINE if r.row != "A1"], ids=lambda r: f"{r.row}-{r.fault}")
def test_the_fault_is_flagged_with_its_exact_trigger(one: Replay, tmp_path: Path) -> None:
    fault = FAULTS[one.fault]
    got = run(one, fault.backend, fault.trigger, tmp_path / "first")
    if not got.exact:
        # Beside other work one night may leave the smallest effects undecided; the next night asks again.
        got = run(one, fault.backend, fault.trigger, tmp_path / "second")
    assert got.flagged, (got.said, got)
    assert got.exact, (got.said, got)


@pytest.mark.slow
def test_a_night_like_the_last_raises_nothing_and_the_fault_after_it_is_named(tmp_path: Path) -> None:
    (one,) = (r for r in MINE if r.row == "A1")
    fault = FAULTS[one.fault]
    assert flagged_without_fault(one, tmp_path / "first") == []
    got = run(one, fault.backend, fault.trigger, tmp_path / "first", good_nights=0)
    if not got.exact:
        got = run(one, fault.backend, fault.trigger, tmp_path / "second")
    assert got.flagged and got.exact, (got.said, got)


def test_every_replay_has_a_fault_and_covers_both_sides_of_its_trigger() -> None:
    from harness.catalogue.replays import rows_where

    for one in REPLAYS:
        fault, cases = FAULTS[one.fault], one.cases()
        inside = rows_where(cases, f"backend == {fault.backend!r} and {fault.trigger}")
        assert 0 < len(inside) < len({c.key for c in cases if c.backend == fault.backend}), one
        assert {c.workload.operation for c in cases} == {fault.operation}
