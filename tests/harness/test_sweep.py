"""Sweeps into real bundles through a real worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import harness.sweep
from harness.bundle import BundleWriter, read_bundle
from harness.model import (
    Case,
    Environment,
    InfrastructureError,
    InputError,
    Machine,
    Measurement,
    MeasureOptions,
    Revision,
    Run,
    Status,
    Value,
)
from harness.model.serde import from_plain, to_plain
from harness.sweep import (
    ResumeState,
    SweepEvent,
    SweepSummary,
    Tried,
    ordered,
    resume_state,
    run_options,
    run_sweep,
    same_run,
)
from harness.worker import WorkerClient

from .workers import QUICK, case, client, private_runtime


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerClient]:
    private_runtime(tmp_path, monkeypatch)
    with client(tmp_path) as c:
        yield c


def new_run(worker: WorkerClient, planned: int) -> Run:
    return Run("run-1", "smoke", Revision("abc"), worker.environment(), 1.0, planned=planned)


def sweep(worker: WorkerClient, cases: list[Case], out: Path, **more: object) -> SweepSummary:
    with BundleWriter(out) as writer:
        run = new_run(worker, len(cases))
        return run_sweep(cases, run=run, client=worker, writer=writer, options=QUICK, **more)  # type: ignore[arg-type]


def kinds(out: Path) -> list[str]:
    return [line.kind for line in read_bundle(out)]


def measurements(out: Path) -> list[Measurement]:
    return [line.record for line in read_bundle(out) if isinstance(line.record, Measurement)]


class InterruptAt:
    """A client that Ctrl-C meets at its n-th case."""

    def __init__(self, worker: WorkerClient, n: int, error: BaseException) -> None:
        self.worker, self.left, self.error = worker, n, error

    def measure(self, case: Case, options: MeasureOptions) -> Measurement:
        if self.left == 0:
            raise self.error
        self.left -= 1
        return self.worker.measure(case, options)

    def controls(self, options: MeasureOptions) -> dict[str, Value]:
        return self.worker.controls(options)

    def environment(self) -> object:
        return self.worker.environment()


def test_order_keeps_backends_of_a_workload_together_and_loses_none() -> None:
    cases = [case(b, q_len=q) for b in ("x", "y", "z") for q in (1, 2)]
    found = [(c.workload.params["q_len"], c.backend) for c in ordered(cases)]
    assert found == [(1, "x"), (1, "y"), (1, "z"), (2, "x"), (2, "y"), (2, "z")]


def test_a_sweep_writes_every_case_with_controls_at_both_ends(
    worker: WorkerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.sweep, "CONTROLS_EVERY", 2)
    out = tmp_path / "b.jsonl"
    summary = sweep(worker, [case("ok", q_len=i) for i in range(1, 6)], out)
    assert kinds(out) == ["run", "controls", "measurement", "measurement", "controls", "measurement", "measurement",
                          "controls", "measurement", "controls", "end"]  # fmt: skip
    assert summary.counts == {Status.OK: 5} and summary.complete and summary.measured == 5
    run, done, complete, _ = resume_state(out)
    assert run is not None and run.id == "run-1" and len(done) == 5 and complete


def test_failures_are_tried_once_more_and_kept_with_their_status(worker: WorkerClient, tmp_path: Path) -> None:
    out = tmp_path / "b.jsonl"
    flaky = case(f"once:{tmp_path / 'marker'}")
    events: list[SweepEvent] = []
    summary = sweep(worker, [case("sigkill"), case("wrong"), flaky, case("ok")], out, progress=events.append)
    assert summary.counts == {Status.CRASHED: 1, Status.WRONG: 1, Status.OK: 2}
    found = [(m.case.backend.partition(":")[0], m.attempt, m.status.value) for m in measurements(out)]
    assert found == [
        ("sigkill", 1, "crashed"), ("sigkill", 2, "crashed"), ("wrong", 1, "wrong"), ("wrong", 2, "wrong"),
        ("once", 1, "crashed"), ("once", 2, "ok"), ("ok", 1, "ok"),
    ]  # fmt: skip
    assert [e.kind for e in events] == ["begin", "retry", "case"] * 3 + ["begin", "case"]
    assert events[0].eta_s is None and all(e.eta_s is not None and e.eta_s >= 0 for e in events[3:])
    assert resume_state(out).done == {c.key for c in (case("sigkill"), case("wrong"), flaky, case("ok"))}


def test_interruption_keeps_what_was_measured_and_resuming_does_the_rest(worker: WorkerClient, tmp_path: Path) -> None:
    out = tmp_path / "b.jsonl"
    cases = [case("ok", q_len=i) for i in range(1, 6)]
    first = sweep(InterruptAt(worker, 2, KeyboardInterrupt()), cases, out)  # type: ignore[arg-type]
    assert first.interrupted and not first.complete and (first.measured, first.remaining) == (2, 3)
    run, done, complete, _ = resume_state(out)
    assert run is not None and not complete and done == {c.key for c in cases[:2]}
    second = sweep(worker, cases, out, done=done, write_run=False)
    assert second.complete and second.measured == 3
    assert [m.case.key for m in measurements(out)] == [c.key for c in cases]
    assert kinds(out).count("run") == 1 and resume_state(out).complete


def test_infrastructure_failure_passes_through_with_the_run_closed(worker: WorkerClient, tmp_path: Path) -> None:
    out = tmp_path / "b.jsonl"
    with pytest.raises(InfrastructureError, match="no disk"):
        sweep(InterruptAt(worker, 1, InfrastructureError("no disk")), [case("ok", q_len=i) for i in (1, 2)], out)  # type: ignore[arg-type]
    assert kinds(out)[-1] == "end" and not resume_state(out).complete and len(measurements(out)) == 1


def test_deadline_leaves_the_rest_for_later(worker: WorkerClient, tmp_path: Path) -> None:
    out = tmp_path / "b.jsonl"
    summary = sweep(worker, [case("ok", q_len=i) for i in (1, 2)], out, deadline=0.0)
    assert (summary.measured, summary.remaining, summary.interrupted, summary.complete) == (0, 2, False, False)
    assert not resume_state(out).complete


def test_a_first_failure_without_its_retry_is_tried_again_as_second_attempt(
    worker: WorkerClient, tmp_path: Path
) -> None:
    out = tmp_path / "b.jsonl"
    failing = case("wrong")
    sweep(InterruptAt(worker, 1, KeyboardInterrupt()), [failing], out)  # type: ignore[arg-type]
    state = resume_state(out)
    assert state.done == set() and state.pending == {failing.key: Tried(1, 1, "wrong")}
    sweep(worker, [failing], out, done=state.done, pending=state.pending, write_run=False)
    assert [m.attempt for m in measurements(out)] == [1, 2]
    assert resume_state(out).done == {failing.key}


def test_what_the_budget_left_out_is_recorded_and_can_be_measured_later(worker: WorkerClient, tmp_path: Path) -> None:
    out = tmp_path / "b.jsonl"
    cases = [case("ok", q_len=1), case("wrong", q_len=2)]
    summary = sweep(worker, cases, out, deadline=0.0, deselect=True)
    assert (summary.measured, summary.remaining) == (0, 2)
    left = measurements(out)
    assert [(m.case.key, m.status, m.attempt) for m in left] == [(c.key, Status.DESELECTED, 1) for c in cases]
    assert all("next night" in m.detail for m in left)
    state = resume_state(out)
    assert state.done == set() and set(state.pending) == {c.key for c in cases} and not state.complete
    sweep(worker, cases, out, done=state.done, pending=state.pending, write_run=False, deadline=0.0, deselect=True)
    assert len(measurements(out)) == 2, "left out twice is recorded once"
    sweep(worker, cases, out, done=state.done, pending=state.pending, write_run=False)
    later = [(m.status, m.attempt) for m in measurements(out)[2:]]
    # Being left out is no failure: a case that fails afterwards is tried once more like any other.
    assert later == [(Status.OK, 2), (Status.WRONG, 2), (Status.WRONG, 3)]
    assert resume_state(out).done == {c.key for c in cases}


@pytest.mark.parametrize(
    "other",
    [
        {"suite": "nightly"},
        {"revision": Revision("def")},
        {"environment": Environment(Machine("cpu", "x"), packages={"torch": "2"})},
        {"options": run_options(MeasureOptions(seed=7), driver="worker")},
        {"options": run_options(QUICK, driver="asv")},
        {"planned": 9},
    ],
    ids=lambda o: next(iter(o)),
)
def test_only_the_same_run_is_gone_on_with(other: dict[str, Any]) -> None:
    environment = Environment(Machine("cpu", "x"), packages={"torch": "1"})
    options = run_options(QUICK, driver="worker")
    run = Run("a", "smoke", Revision("abc"), environment, 1.0, planned=3, options=options)
    # Who asks, when, and from which folder the kernels came is no difference.
    again = replace(run, id="b", started_at=2.0, environment=replace(environment, kernels_path="/elsewhere"))
    assert same_run(run, again)
    assert same_run(from_plain(Run, json.loads(json.dumps(to_plain(run)))), again), "also after a bundle kept it"
    assert not same_run(run, replace(again, **other))


def test_resume_state_reads_what_was_cut_off_and_refuses_what_is_no_bundle(
    worker: WorkerClient, tmp_path: Path
) -> None:
    out = tmp_path / "b.jsonl"
    assert resume_state(out) == ResumeState()
    cases = [case("ok", q_len=i) for i in (1, 2)]
    sweep(worker, cases, out)
    lines = out.read_bytes().splitlines(keepends=True)
    second = next(i for i, line in enumerate(lines) if json.loads(line).get("case", {}) == json.loads(lines[3])["case"])
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines[:second]) + lines[second][:50])
    state = resume_state(cut)
    assert state.done == {cases[0].key} and not state.complete
    for text, message in (("name,value\n", ":1: not a line"), ('{"kind": "run", "schema": 1, "id": 3}\n', ":1: run")):
        bad = tmp_path / "bad"
        bad.write_text(text)
        with pytest.raises(InputError, match=message):
            resume_state(bad)
    with pytest.raises(InputError, match="cannot read"):
        resume_state(tmp_path)
