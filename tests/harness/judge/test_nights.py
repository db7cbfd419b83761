"""Nights in a real store, judged one by one; only the measuring again is scripted.

A world says how long each case takes with which kernels and packages. Nights are measured from it, and so is what
confirmation asks for, so that a right judge finds exactly what the world changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import harness.judge.confirm as confirm_module
import harness.judge.ends as ends_module
import harness.judge.night as night_module
from db.engine import Store, open_store
from db.queries import incident, incidents
from db.repository import triage
from harness.ab import ABCase
from harness.builds import Build
from harness.bundle import BundleWriter
from harness.detection.ab import ABOptions, compare
from harness.ingest import ingest_bundle
from harness.judge import JudgePlan, judge_night
from harness.model import (
    Case,
    Environment,
    Machine,
    Measurement,
    MeasureOptions,
    Reason,
    Revision,
    Run,
    RunEnd,
    Status,
    TriageState,
    Value,
    Workload,
)
from harness.model.expr import compile_expr
from harness.model.findings import NightReport
from harness.report import markdown, summary
from harness.worker import WorkerSpec

CASES = [
    Case("decode", Workload("attention", {"q_len": 1, "kv_len": n}), backend)
    for backend in ("sdpa_math", "segmented")
    for n in (128, 129, 256, 257, 384, 385, 512, 513)
]
S = TriageState
Cost = Callable[[Case, str, str], float | Status]


def wiggle(i: int, scale: float = 0.01) -> float:
    """Fixed small noise without a generator."""
    return 1 + scale * (((i * 7919) % 13) / 6 - 1)


@dataclass
class World:
    """What measuring would give. ``cost(case, kernels, torch)`` is seconds, or the status it ends with."""

    store: Store
    folder: Path
    cost: Cost
    calls: Callable[[Case, str], int] = lambda case, kernels: 10
    torch: str = "2.13"
    kernels: str = "a"
    nights: int = 0
    interleaved: list[str] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)
    base_dies: bool = False
    disturbed: dict[tuple[str, int], float] = field(
        default_factory=dict
    )  # of the night's sweep, not of what is asked later

    def measured(self, case: Case, kernels: str, at: float, salt: int, attempt: int = 1) -> Measurement:
        got = self.cost(case, kernels, self.torch)
        if isinstance(got, Status):
            return Measurement(case, got, at, detail="scripted", attempt=attempt)
        samples = [got * wiggle(salt + i) for i in range(12)]
        value = got * wiggle(salt)
        metrics = {"latency_s": Value(value, value * 0.99, value * 1.01, 12)}
        metrics["operator_calls"] = Value(self.calls(case, kernels))
        return Measurement(case, Status.OK, at, metrics=metrics, samples={"latency_s": samples})

    def night(self, kernels: str | None = None, deadline: float | None = None) -> NightReport:
        """Measure, store and judge one night."""
        self.kernels = kernels or self.kernels
        self.nights += 1
        start = 1.7e9 + 86400 * self.nights
        run_id = f"run{self.nights}"
        environment = Environment(
            Machine("cpu", "some CPU"), packages={"torch": self.torch}, kernels_hash=f"hash-{self.kernels}"
        )
        revision = Revision(self.kernels * 40, self.kernels * 40, kernels_hash=f"hash-{self.kernels}")
        path = self.folder / f"{run_id}.jsonl"
        with BundleWriter(path) as writer:
            writer.run(Run(run_id, "mini", revision, environment, start, Reason.NIGHTLY, len(CASES)))
            for i, case in enumerate(CASES):
                m = self.measured(case, self.kernels, start + i, self.nights * 31 + i * 5)
                key = (case.backend, int(case.workload.params["kv_len"]))  # type: ignore[arg-type]
                if (off := self.disturbed.get(key)) is not None:
                    held = m.metrics["latency_s"]
                    m.metrics["latency_s"] = Value(
                        held.value * off, held.value * off * 0.99, held.value * off * 1.01, 12
                    )
                writer.measurement(run_id, m)
                if m.status.failed:
                    writer.measurement(run_id, self.measured(case, self.kernels, start + i + 0.5, 0, attempt=2))
            writer.end(RunEnd(run_id, start + 100, measured=len(CASES)))
        ingest_bundle(self.store, path)
        plan = JudgePlan("cpu", self.folder, f"/tree/{self.kernels}", "mini", deadline=deadline)
        return judge_night(self.store, run_id, plan, lambda *a: None, lambda text: None)

    # What stands for the worker.
    def run_ab(
        self, cases: Sequence[Case], base: WorkerSpec, head: WorkerSpec, options: MeasureOptions, judge: ABOptions,
        *, deadline: float | None = None, progress: Any = None,
    ) -> tuple[list[ABCase], list[Case]]:  # fmt: skip
        if deadline is not None and time.time() >= deadline:
            return [], list(cases)
        self.interleaved += [c.workload.label for c in cases]
        done = []
        for case in cases:
            a, b = (self.cost(case, str(s.kernels)[-1], self.torch) for s in (base, head))
            if self.base_dies:
                a = Status.CRASHED
            if isinstance(a, Status) or isinstance(b, Status):
                statuses = [x if isinstance(x, Status) else Status.OK for x in (a, b)]
                done.append(ABCase(case, statuses[0], statuses[1], detail="scripted"))
                continue
            x, y = ([v * wiggle(i * 3 + k) for i in range(24)] for v, k in ((a, 1), (b, 2)))
            done.append(ABCase(case, Status.OK, Status.OK, compare(x, y, judge, paired=True), "", x, y))
        return done, []


class Client:
    """A worker that answers from the world."""

    def __init__(self, world: World, spec: WorkerSpec) -> None:
        self.world, self.spec = world, spec

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def measure(self, case: Case, options: MeasureOptions) -> Measurement:
        self.world.alone.append(case.workload.label)
        return self.world.measured(case, str(self.spec.kernels)[-1], 2e9, 3)


def steady(case: Case, kernels: str, torch: str) -> float | Status:
    return 0.001 * (1 + case.workload.params["kv_len"] / 1000)  # type: ignore[operator]


def slower(when: Callable[[Case, str, str], bool], by: float = 1.3) -> Cost:
    def cost(case: Case, kernels: str, torch: str) -> float | Status:
        usual = steady(case, kernels, torch)
        assert isinstance(usual, float)
        return usual * (by if when(case, kernels, torch) else 1)

    return cost


def odd_length(case: Case) -> bool:
    return int(case.workload.params["kv_len"]) % 128 == 1  # type: ignore[arg-type]


def odd(case: Case) -> bool:
    return case.backend == "segmented" and case.workload.params["kv_len"] % 128 == 1  # type: ignore[operator]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(open_store(tmp_path / "n.db"), tmp_path, steady)
    monkeypatch.setattr(confirm_module, "run_ab", made.run_ab)
    monkeypatch.setattr(confirm_module.WorkerClient, "connect", lambda spec: Client(made, spec))
    monkeypatch.setattr(ends_module, "build", lambda repo, ref: Build(Path(f"/tree/{ref[0]}"), ref))
    return made


def named(report: NightReport) -> set[tuple[str, int]]:
    return {
        (f.case.backend, int(f.case.workload.params["kv_len"]))  # type: ignore[arg-type]
        for i in report.new_confirmed
        for f in i.findings
        if f.metric == "latency_s"
    }


SLOW = {("segmented", n) for n in (129, 257, 385, 513)}


def test_quiet_nights_stay_quiet(world: World) -> None:
    reports = [world.night(kernels) for kernels in "aabbcd"]
    assert [r.incidents for r in reports] == [[]] * 6
    assert incidents(world.store) == []


def test_a_regression_is_told_once_stays_open_and_recovers(world: World) -> None:
    world.cost = slower(lambda case, kernels, torch: odd(case) and kernels in "bc")
    world.night("a")
    world.night("a")
    red = world.night("b")
    assert named(red) == SLOW
    assert red.base_revision is not None
    assert red.base_revision.id == "a" * 40
    known = red.new_confirmed[0].id
    for kernels in ("b", "c", "c"):  # the same commit, then another that is as slow
        report = world.night(kernels)
        assert report.new_confirmed == []
        assert report.still_open == [known]
        assert not [f for f in report.findings if f.state is S.DISMISSED]
    healed = world.night("d")
    assert healed.recovered == [known]
    detail = incident(world.store, known)
    assert detail is not None
    assert detail.incident.state == S.FIXED
    assert detail.incident.first_bad_revision == "b" * 40
    assert detail.incident.last_good_revision == "a" * 40
    again = world.night("b")
    assert named(again) == SLOW, "a regression that comes back is news"


def test_the_first_report_already_tells_what_was_measured(world: World) -> None:
    world.cost = lambda case, kernels, torch: (
        Status.WRONG if case.backend == "sdpa_math" and odd_length(case) else 0.002 if odd_length(case) else 0.001
    )
    page = markdown(world.night())
    table = page[page.index("## What was measured") :]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if "kv" in line]
    assert len(rows) == 8
    assert sum(not row[1].strip() for row in rows) == 4, "what failed has no latency"
    assert all("±" in row[2] for row in rows)


@pytest.mark.parametrize(("kernels", "by", "back"), [("d", 1.18, True), ("d", 1.08, True), ("c", 0.9, False)])
def test_one_noisy_night_neither_keeps_an_incident_nor_closes_it(
    world: World, kernels: str, by: float, back: bool
) -> None:
    world.cost = slower(lambda case, kernels, torch: odd(case) and kernels in "bc")
    world.night("a")
    world.night("a")
    known = world.night("b").new_confirmed[0].id
    world.interleaved.clear()
    world.disturbed = {("segmented", 257): by}
    report = world.night(kernels)
    assert report.new_confirmed == []
    assert (report.recovered, report.still_open) == (([known], []) if back else ([], [known]))
    assert len(world.interleaved) <= 1, "only what is in doubt is measured again"


def test_unsettled_suspects_are_not_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cost = slower(lambda case, kernels, torch: odd(case) and kernels == "b")
    world.night("a")
    world.night("a")
    monkeypatch.setattr(night_module, "_CONFIRM_S", -1.0)
    hurried = world.night("b")
    assert hurried.new_confirmed == []
    assert {i.state for i in incidents(world.store)} == {S.SUSPECT}
    monkeypatch.setattr(night_module, "_CONFIRM_S", 60.0)
    later = world.night("b")
    assert named(later) == SLOW
    assert {i.state for i in incidents(world.store)} == {S.NEW, S.DISMISSED}


def test_an_environment_is_not_acquitted_by_interleaved_kernels(world: World) -> None:
    world.cost = slower(lambda case, kernels, torch: odd(case) and torch == "2.14")
    world.night("a")
    world.night("a")
    world.torch = "2.14"
    report = world.night("b")  # a harmless commit in the same night
    assert named(report) == SLOW
    assert any("package torch: 2.13 -> 2.14" in text for text in report.what_changed)


def test_the_machine_moving_is_no_regression(world: World) -> None:
    world.night("a")
    world.night("a")
    world.cost = slower(lambda case, kernels, torch: odd(case))
    report = world.night("a")
    assert report.incidents == []
    assert {f.how for f in report.findings} == {confirm_module.MACHINE_MOVED}


def test_noise_of_one_night_is_dismissed_when_interleaved(world: World) -> None:
    world.night("a")
    world.night("a")
    world.cost = slower(lambda case, kernels, torch: odd(case))  # slow for base too: not the commit
    report = world.night("b")
    assert report.new_confirmed == []
    assert {f.state for f in report.findings} == {S.DISMISSED}
    assert len(world.interleaved) == 4


def test_a_base_that_dies_does_not_accuse_head(world: World) -> None:
    world.cost = slower(lambda case, kernels, torch: odd(case) and kernels == "b")
    world.night("a")
    world.night("a")
    world.base_dies = True
    report = world.night("b")
    assert report.new_confirmed == []
    assert {f.state for f in report.findings} == {S.SUSPECT}


@pytest.mark.parametrize(
    ("status", "red"),
    [(Status.WRONG, True), (Status.OUT_OF_MEMORY, True), (Status.CRASHED, True), (Status.INVALID, False),
     (Status.UNSUPPORTED, False)],
)  # fmt: skip
def test_from_ok_to_broken(world: World, status: Status, red: bool) -> None:
    world.night("a")
    world.cost = lambda case, kernels, torch: status if kernels == "b" and odd(case) else steady(case, kernels, torch)
    report = world.night("b")
    assert bool(report.new_confirmed) is red
    if red:
        stored = incident(world.store, report.new_confirmed[0].id)
        assert stored is not None
        assert {(r.base_status, r.head_status, r.metric) for r in stored.regressions} == {
            ("ok", status.value, "status")
        }
        world.cost = steady
        assert world.night("c").recovered == [report.new_confirmed[0].id]


def test_a_status_that_does_not_repeat_is_dismissed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.night("a")
    world.cost = lambda case, kernels, torch: Status.CRASHED if odd(case) else steady(case, kernels, torch)
    monkeypatch.setattr(Client, "measure", lambda self, case, options: Measurement(case, Status.OK, 0.0))
    assert world.night("b").incidents == []


@pytest.mark.parametrize(("base", "head"), [(10, 11), (0, 1)])
def test_one_unit_of_an_exact_metric_counts(world: World, base: int, head: int) -> None:
    world.calls = lambda case, kernels: head if kernels == "b" and odd(case) else base
    world.night("a")
    report = world.night("b")
    found = [f for i in report.new_confirmed for f in i.findings]
    assert {(f.metric, f.case.backend) for f in found} == {("operator_calls", "segmented")}
    assert len(world.alone) == 4, "exact metrics are measured again too"
    fewer = world.night("a")
    assert fewer.new_confirmed == []
    assert fewer.recovered


def test_triage_is_respected(world: World) -> None:
    world.cost = slower(lambda case, kernels, torch: odd(case) and kernels in "bc")
    world.night("a")
    world.night("a")
    known = world.night("b").new_confirmed[0].id
    triage(world.store, known, S.ACKNOWLEDGED, "we know", "someone")
    assert world.night("b").still_open == [known]
    triage(world.store, known, S.EXPECTED, "the price of being right", "someone")
    calm = world.night("b")
    assert (calm.new_confirmed, calm.still_open, calm.findings) == ([], [], [])
    world.cost = lambda case, kernels, torch: (
        steady(case, kernels, torch)
        * (1.3 if kernels in "bc" and odd(case) else 1)
        * (1.4 if kernels == "c" and odd(case) else 1)  # type: ignore[operator]
    )
    worse = world.night("c")
    assert named(worse) == SLOW, "measured against the level that was called expected"
    assert worse.new_confirmed[0].findings[0].ratio == pytest.approx(1.4, rel=0.03)


def test_missing_cases_are_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.night("a")
    world.night("a")
    monkeypatch.setattr("tests.harness.judge.test_nights.CASES", CASES[:-2])
    report = world.night("b")
    assert len(report.missing) == 2


def test_the_trigger_is_named_and_metrics_that_share_it_are_one_incident(world: World) -> None:
    lengths = [64 * i + d for i in range(1, 17) for d in (0, 1, 2)]
    cases = [
        Case("decode", Workload("attention", {"q_len": q, "kv_len": n}), backend)
        for backend in ("sdpa_math", "segmented")
        for q in (1, 4)
        for n in lengths
    ]
    CASES.extend(c for c in cases if c.key not in {x.key for x in CASES})
    try:
        hit = lambda case: odd(case) and case.workload.params["q_len"] == 1  # noqa: E731
        world.cost = slower(lambda case, kernels, torch: hit(case) and kernels == "b")
        world.calls = lambda case, kernels: 12 if kernels == "b" and hit(case) else 10
        world.night("a")
        world.night("a")
        report = world.night("b")
    finally:
        del CASES[16:]
    assert len(report.new_confirmed) == 1, "one incident, not one per metric"
    found = report.new_confirmed[0]
    assert {f.metric for f in found.findings} == {"latency_s", "operator_calls"}
    assert found.trigger is not None
    rule = compile_expr(found.trigger)
    assert [rule(c.columns) for c in cases] == [hit(c) for c in cases]
    assert "0 of" in found.evidence
    stored = incident(world.store, found.id)
    assert stored is not None
    assert stored.incident.trigger_text == found.trigger
    text = summary(report)
    assert found.trigger in text
    assert "attnwatch compare --base aaaaaaaaaaaa --head bbbbbbbbbbbb" in text


@pytest.mark.parametrize("before", [2, 5, 9, 14])
def test_a_large_step_is_told_the_same_night_whatever_the_history(world: World, before: int) -> None:
    world.cost = slower(lambda case, kernels, torch: odd(case) and kernels == "b", 1.38)
    for _ in range(before):
        assert world.night("a").new_confirmed == []
    assert named(world.night("b")) == SLOW
    for _ in range(4):  # and it neither flaps nor becomes normal
        report = world.night("b")
        assert (report.new_confirmed, report.recovered, len(report.still_open)) == ([], [], 1)
