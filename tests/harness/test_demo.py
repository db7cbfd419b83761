"""The demonstration finds what it plants, and the same seed gives the same nights."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.engine import open_store
from db.queries import incident, incidents, runs
from harness.demo import FAULTS, World, shifted, suite
from harness.demo.__main__ import _clear
from harness.demo.faults import NIGHTS
from harness.model import InputError, TriageState
from tests.dashboard.stores import NOW, nights, run


def test_the_newest_fault_is_found_with_its_trigger_and_is_marked(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    world = nights(path, 5)
    with open_store(path, read_only=True) as store:
        found = incidents(store)
        assert [i.state for i in found] == [TriageState.NEW]
        detail = incident(store, found[0].id)
        assert detail is not None
        hit = {r.case.key for r in detail.regressions}
        fault = world.faults[-1]
        planted = {c.key for c in suite() if fault.predicate(c.columns)}
        assert hit == planted
        assert found[0].first_bad_revision == world.revision(world.night).id
        kept = runs(store, limit=None)
        assert all(r.options["demo"] for r in kept)
        assert fault.text in kept[0].options["planted"]
        assert found[0].opened_at == pytest.approx(NOW + 3600), "dated by its night, not by today"


def test_the_same_seed_gives_the_same_nights(tmp_path: Path) -> None:
    told = []
    for name in "ab":
        nights(tmp_path / f"{name}.db", 3)
        with open_store(tmp_path / f"{name}.db", read_only=True) as store:
            told.append([(i.id, i.trigger_text, i.effect) for i in incidents(store)])
    assert told[0] == told[1]


def test_only_faults_within_the_nights_are_planted() -> None:
    assert shifted(FAULTS, NIGHTS) == list(FAULTS)
    assert [f.since for f in shifted(FAULTS, 5)] == [4]


def test_a_store_of_real_runs_is_not_overwritten(tmp_path: Path) -> None:
    real = tmp_path / "real.db"
    run(real, "r1", suite()[:2])
    with pytest.raises(InputError, match="no demonstration"):
        _clear(real)
    assert real.exists()
    nights(tmp_path / "demo.db", 2)
    _clear(tmp_path / "demo.db")
    assert not (tmp_path / "demo.db").exists()


def test_a_commit_comes_with_every_fault_of_the_kernels_and_with_none_of_the_machine() -> None:
    with_world = World.__new__(World)
    with_world.faults = FAULTS
    for f in FAULTS:
        same = with_world.generation(f.since) == with_world.generation(f.since - 1)
        assert same == bool(f.torch or f.machine), f.text
