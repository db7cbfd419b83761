"""The asv child's side: one run per bundle, what is left out is recorded, what is settled is not done again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.asv_child import measure_for_asv
from harness.asv_drive import _without_kernels
from harness.asv_session import AsvSession, Earlier, load_session, read_session
from harness.bundle import read_bundle
from harness.model import InputError, Measurement, Run, Status
from harness.model.serde import to_plain
from harness.model.suite import Question, grid
from harness.night_sweep import _write_done
from harness.sweep import resume_state
from harness.worker import WorkerClient, WorkerSpec

from .workers import QUICK, private_runtime

COMMIT = "c" * 40
QUESTION = Question("prefill", "attention", {"smoke": grid("attention", seq_len=[8, 9])}, ("ok", "wrong", "sigkill"))
LABELS = [w.label for w in QUESTION.workloads("smoke")]


class Night:
    """A session on disk and what its children left in the bundle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.session = AsvSession(
            str(folder / "bundles"), "smoke", "cpu", planned=6, tag="t-1", options=replace(QUICK, seed=3)
        )

    def child(self, label: str, backend: str, **changes: Any) -> Measurement:
        """What one child gives asv, in a session with ``changes``."""
        replace(self.session, **changes).save(self.folder / "session.json")
        return measure_for_asv(QUESTION, label, backend)

    def key(self, label: str, backend: str) -> str:
        workload = next(w for w in QUESTION.workloads("smoke") if w.label == label)
        return QUESTION.case(workload, backend).key

    @property
    def bundle(self) -> Path:
        found = self.session.find_bundle(COMMIT)
        assert found is not None
        return found

    @property
    def records(self) -> list[tuple[str, str, int]]:
        """(backend, status, attempt) of each measurement."""
        lines = [line.record for line in read_bundle(self.bundle)]
        return [(m.case.backend, m.status.value, m.attempt) for m in lines if isinstance(m, Measurement)]


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Night]:
    private_runtime(tmp_path, monkeypatch)
    monkeypatch.setenv("ATTNWATCH_SESSION", str(tmp_path / "session.json"))
    monkeypatch.setenv("ASV_COMMIT", COMMIT)
    monkeypatch.setenv("ASV_CONF_DIR", str(tmp_path))
    yield Night(tmp_path)
    WorkerClient.connect(WorkerSpec("cpu")).shutdown()


def test_children_share_one_run_that_says_how_it_was_asked_for(night: Night) -> None:
    assert night.child(LABELS[0], "ok").status is Status.OK
    assert night.child(LABELS[1], "wrong").attempt == 2
    runs = [line.record for line in read_bundle(night.bundle) if isinstance(line.record, Run)]
    assert len(runs) == 1 and runs[0].revision.commit == COMMIT and runs[0].planned == 6 and runs[0].suite == "smoke"
    assert runs[0].options["driver"] == "asv" and runs[0].options["session"] == "t-1" and runs[0].options["seed"] == 3
    assert night.records == [("ok", "ok", 1), ("wrong", "wrong", 1), ("wrong", "wrong", 2)]


def test_what_the_budget_leaves_out_is_recorded_with_the_reason(night: Night) -> None:
    late = night.child(LABELS[0], "ok", deadline=1.0)
    assert late.status is Status.DESELECTED and "budget had ended" in late.detail
    other = night.child(LABELS[1], "ok", selected=(night.key(LABELS[0], "ok"),))
    assert other.status is Status.DESELECTED and "next night" in other.detail
    assert night.child(LABELS[0], "ok", selected=(night.key(LABELS[0], "ok"),)).status is Status.OK
    assert night.records == [("ok", "deselected", 1), ("ok", "deselected", 1), ("ok", "ok", 1)]


def test_going_on_repeats_nothing_and_settles_what_was_left(night: Night) -> None:
    first = night.child(LABELS[0], "ok")
    night.child(LABELS[1], "ok", deadline=1.0)
    night.child(LABELS[0], "wrong")
    done = {"done_file": str(_write_done(night.bundle, night.folder / "done.json"))}
    count = len(night.records)
    assert night.child(LABELS[0], "ok", **done) == first, "given back as it was"
    assert night.child(LABELS[0], "wrong", **done).attempt == 2
    assert night.child(LABELS[1], "ok", deadline=1.0, **done).status is Status.DESELECTED
    assert len(night.records) == count, "nothing is measured or recorded twice"
    # The store keeps one record for each attempt, so what was left out goes on with the next.
    assert night.child(LABELS[1], "ok", **done).attempt == 2
    assert resume_state(night.bundle).pending == {}


def test_a_first_failure_that_was_cut_off_gets_its_second_try_only(night: Night) -> None:
    night.child(LABELS[0], "sigkill")
    lines = night.bundle.read_bytes().splitlines(keepends=True)
    night.bundle.write_bytes(b"".join(lines[:-1]))
    assert night.records == [("sigkill", "crashed", 1)]
    done = {"done_file": str(_write_done(night.bundle, night.folder / "done.json"))}
    assert json.loads((night.folder / "done.json").read_text()) == {
        night.key(LABELS[0], "sigkill"): to_plain(Earlier(1, 1))
    }
    assert night.child(LABELS[0], "sigkill", **done).attempt == 2
    assert night.records == [("sigkill", "crashed", 1), ("sigkill", "crashed", 2)]


@pytest.mark.parametrize("name", ["my[1]*?suite", "plain", "worktree t-1 archive"])
def test_a_bundle_is_found_by_what_it_holds_whatever_its_name(night: Night, name: str) -> None:
    suite = night.folder / f"{name}.suite.json"
    session = replace(night.session, suite=str(suite))
    assert session.find_bundle(COMMIT) is None
    path = session.bundle(COMMIT, "k" * 16)
    assert path.name.startswith(name)
    night.child(LABELS[0], "ok")
    moved = night.bundle.rename(path)
    assert session.find_bundle(COMMIT) == moved
    assert session.find_bundle("d" * 40) is None
    assert replace(session, tag="t-2").find_bundle(COMMIT) is None


def test_session_files_round_trip_and_bad_ones_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.json"
    session = AsvSession("b", "smoke", "cpu", selected=("a", "b"), options=QUICK)
    session.save(path)
    assert read_session(path) == session
    path.write_text('{"suite": 3}')
    with pytest.raises(InputError, match=r"s.json: not a session file"):
        read_session(path)
    monkeypatch.delenv("ATTNWATCH_SESSION", raising=False)
    monkeypatch.setenv("ATTNWATCH_SUITE", "boundary")
    monkeypatch.setenv("ASV_CONF_DIR", str(tmp_path))
    plain = load_session()
    assert plain.suite == "boundary" and plain.selected is None and plain.tag


def test_folders_with_other_kernels_stay_out_of_the_children_path(tmp_path: Path) -> None:
    (tmp_path / "checkout" / "kernels").mkdir(parents=True)
    (tmp_path / "plugins").mkdir()
    found = _without_kernels(f"{tmp_path / 'checkout'}::{tmp_path / 'plugins'}")
    assert found == str(tmp_path / "plugins")
