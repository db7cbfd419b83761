"""Measuring for a night without asv: what is gone on with, what is stored first, what a budget leaves for later."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import harness.night_sweep
from db.engine import Store, open_store
from db.queries import row_counts, runs
from harness.bundle import BundleWriter, read_bundle
from harness.ingest import ingest_bundle
from harness.model import Measurement, MeasureOptions, Status
from harness.model.suite import grid
from harness.model.workloads import write_suite
from harness.night_sweep import Measured, NightlyOptions, NightPlan, measure_night, plan_night
from harness.nightly import choose, finish, take_leftovers
from harness.suites import load_suite
from harness.sweep import SweepSummary
from harness.worker import WorkerClient
from tests.db.factory import make_measurement

from .workers import QUICK, private_runtime, tree


class House:
    """A folder with kernels and a suite file, and nights in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        tree(folder / "repo")
        self.suite = folder / "calls.suite.json"
        write_suite(self.suite, grid("attention", q_len=8, kv_len=[8, 9, 10], heads_q=1), "calls")
        self.options = NightlyOptions(str(self.suite), "cpu", folder / "repo", options=QUICK)
        self.cases = [c for c in load_suite(str(self.suite)) if c.backend in ("sdpa_math", "segmented")]

    def plan(self, **changes: Any) -> NightPlan:
        return plan_night(replace(self.options, **changes), list(self.cases), self.said.append)

    def measure(self, plan: NightPlan, deadline: float | None = None) -> Measured:
        return measure_night(plan, None, deadline, lambda done, total, text: None, self.said.append)

    def stop_after(self, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C once ``count`` cases are measured."""
        real, left = WorkerClient.measure, [count]

        def measure(client: WorkerClient, *args: Any) -> Measurement:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            return real(client, *args)

        monkeypatch.setattr(WorkerClient, "measure", measure)

    @property
    def bundles(self) -> list[Path]:
        return sorted(self.options.bundles.glob("*.jsonl"))


def measurements(path: Path) -> list[Measurement]:
    return [line.record for line in read_bundle(path) if isinstance(line.record, Measurement)]


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    private_runtime(tmp_path, monkeypatch)
    house = House(tmp_path)
    yield house
    with WorkerClient.connect(house.plan().spec) as client:
        client.shutdown()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "s.db")) as store:
        yield store


def interrupted(house: House, monkeypatch: pytest.MonkeyPatch, count: int = 2) -> Path:
    """The bundle of a night that was broken off after ``count`` cases."""
    with monkeypatch.context() as patch:
        house.stop_after(count, patch)
        with pytest.raises(KeyboardInterrupt):
            house.measure(house.plan())
    (path,) = house.bundles
    assert len(measurements(path)) == count
    return path


def test_the_same_work_is_gone_on_with_and_nothing_measured_twice(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = interrupted(house, monkeypatch)
    before = measurements(path)
    plan = house.plan()
    assert plan.earlier == path and any("going on" in text for text in house.said)
    measured = house.measure(plan)
    assert measured.bundle == path and measured.run_id == next(iter(read_bundle(path))).run_id
    after = measurements(path)
    assert after[:2] == before and len({m.case.key for m in after}) == len(after) == len(house.cases)
    assert plan.run(None).suite == "calls"


@pytest.mark.parametrize("change", ["options", "kernels", "environment", "suite", "planned"])
def test_other_work_is_not_gone_on_with_but_stored(
    house: House, store: Store, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    path = interrupted(house, monkeypatch)
    changes: dict[str, Any] = {}
    if change == "options":
        changes = {"options": replace(QUICK, seed=9)}
    elif change == "kernels":
        tree(house.folder / "repo", "SPEED = 0.002\n")
    elif change == "environment":
        monkeypatch.setenv("FAKE", "another")
        monkeypatch.setenv("OMP_DISPLAY_ENV", "FALSE")  # gives another worker
    elif change == "suite":
        other = house.suite.with_name("other.suite.json")
        other.write_bytes(house.suite.read_bytes())
        changes = {"suite": str(other)}
    else:
        house.cases = house.cases[:-1]
    plan = house.plan(**changes)
    assert plan.earlier is None
    take_leftovers(house.options, store, plan.earlier, house.said.append)
    assert row_counts(store)["measurements"] == 2, "what an earlier sweep measured is not lost"
    assert not path.exists() and (path.parent / "archive" / path.name).exists()


def test_the_bundle_that_is_gone_on_with_is_left_where_it_is(
    house: House, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = interrupted(house, monkeypatch)
    odd = path.with_name("no bundle.jsonl")
    odd.write_text("hello\n")
    take_leftovers(house.options, store, house.plan().earlier, house.said.append)
    assert path.exists() and row_counts(store)["runs"] == 0
    assert odd.with_suffix(".bad").exists() and any("left aside" in text for text in house.said)


def test_a_bundle_broken_off_after_measuring_is_judged_not_measured_again(house: House) -> None:
    first = house.measure(house.plan())
    size = first.bundle.stat().st_size
    again = house.measure(house.plan())
    assert (again.bundle, again.run_id) == (first.bundle, first.run_id) and first.bundle.stat().st_size == size
    finish(house.options, again.bundle)
    assert house.bundles == [] and house.plan().earlier is None


def test_what_the_budget_leaves_out_is_told_and_comes_first_next_time(house: House, store: Store) -> None:
    plan = house.plan()
    measured = house.measure(plan, deadline=time.time() - 1)
    assert any("left 6 of 6 cases for the next night" in n for n in measured.notes)
    assert {m.status for m in measurements(measured.bundle)} == {Status.DESELECTED}
    ingest_bundle(store, measured.bundle)
    finish(house.options, measured.bundle)
    assert [r.complete for r in runs(store)] == [False]

    # A night that gets to the first two of three workloads.
    house.options = replace(house.options, options=MeasureOptions(timeout_s=20.0, seed=1))
    plan = house.plan()
    plan.cases = plan.cases[:4]
    measured = house.measure(plan)
    seen = {m.case.key for m in measurements(measured.bundle)}
    ingest_bundle(store, measured.bundle)
    finish(house.options, measured.bundle)

    plan = house.plan()
    selected = choose(store, plan, time.time() + 2.0, house.said.append)
    assert {c.key for c in plan.cases[:2]} == {c.key for c in house.cases} - seen, "those never measured come first"
    assert selected is not None and plan.cases[0].key in selected and plan.cases[-1].key not in selected
    assert choose(store, plan, time.time() + 1e6, house.said.append) is None, "all fit: nothing is left out"


def test_progress_counts_what_an_earlier_sitting_measured(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(house, monkeypatch)
    shown: list[tuple[int, int]] = []
    measure_night(house.plan(), None, None, lambda done, total, text: shown.append((done, total)), house.said.append)
    assert shown[0] == (2, 6) and shown == sorted(shown) and shown[-1][0] <= 6


def git(repo: Path, *args: str) -> None:
    command = ["git", "-C", str(repo), "-c", "user.name=t", "-c", "user.email=t@example.org", *args]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.parametrize("change", ["nothing", "options", "suite", "device", "environment", "commit", "planned"])
def test_a_session_under_asv_is_gone_on_with_only_for_the_same_work(
    house: House, store: Store, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    repo = house.options.repo
    (repo / "asv.conf.json").write_text("{}")
    git(repo, "init", "-q")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "one")
    plan = house.plan()
    assert plan.commit is not None and plan.earlier is None
    # What a child of asv leaves: the session, and a bundle that says so in its first line.
    session = plan.session(None, None, None)
    session.save(house.options.session)
    house.options.bundles.mkdir(parents=True)
    path = house.options.bundles / "any name.jsonl"
    with BundleWriter(path) as writer:
        run = plan.run(session)
        writer.run(run)
        writer.measurement(run.id, make_measurement(house.cases[0]))
    changes: dict[str, Any] = {}
    if change == "options":
        changes = {"options": replace(QUICK, seed=9)}
    elif change == "suite":
        other = house.suite.with_name("other") / "calls.suite.json"
        other.parent.mkdir()
        other.write_bytes(house.suite.read_bytes())
        changes = {"suite": str(other)}
    elif change == "device":
        house.options.session.write_text(house.options.session.read_text().replace('"cpu"', '"cuda:0"'))
    elif change == "environment":
        monkeypatch.setenv("FAKE", "another")
        monkeypatch.setenv("OMP_DISPLAY_ENV", "FALSE")
    elif change == "commit":
        git(repo, "commit", "-q", "--allow-empty", "-m", "two")
    elif change == "planned":
        house.cases = house.cases[:-1]
    again = house.plan(**changes)
    if change == "nothing":
        assert (again.earlier, again.tag) == (path, session.tag)
        assert plan.session(None, {"b", "a"}, None).selected == ("a", "b")
    else:
        assert again.earlier is None and again.tag != session.tag
    take_leftovers(house.options, store, again.earlier, house.said.append)
    assert row_counts(store)["measurements"] == (0 if change == "nothing" else 1)


def test_an_interruption_names_the_bundle_and_is_raised(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness.night_sweep, "run_sweep", lambda *a, **k: SweepSummary(interrupted=True))
    with pytest.raises(KeyboardInterrupt):
        house.measure(house.plan())
    assert any("the same command goes on" in text for text in house.said)
