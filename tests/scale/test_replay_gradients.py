"""Row B9: gradients of shared heads summed over real processes, flagged and named."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.catalogue.replays import flagged_without_fault, run
from harness.catalogue.step_replays import REPLAYS
from kernels.faults import FAULTS

pytestmark = [pytest.mark.scale, pytest.mark.timeout(600)]

(GRADIENTS,) = (r for r in REPLAYS if r.row == "B9")


@pytest.fixture(autouse=True)
def one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNWATCH_RUNTIME_DIR", str(tmp_path / "rt"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_the_wrong_reduction_is_flagged_where_heads_are_shared_and_ranks_are_many(tmp_path: Path) -> None:
    fault = FAULTS[GRADIENTS.fault]
    got = run(GRADIENTS, fault.backend, fault.trigger, tmp_path)
    assert got.flagged and got.exact, (got.said, got)


def test_nights_without_it_raise_nothing(tmp_path: Path) -> None:
    assert flagged_without_fault(GRADIENTS, tmp_path) == []
