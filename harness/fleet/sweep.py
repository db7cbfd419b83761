"""``attnwatch fleet``: one suite over all devices of a cluster, to one bundle for each kind of device.

Devices that are alike (machine, packages, kernels) share a run and measure each case once; every kind of device
measures the whole suite, since series never cross kinds.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.bundle import BundleWriter
from harness.model import Case, Measurement, MeasureOptions, Run, RunEnd, Scalar, Status
from harness.rotation import Costs
from harness.sweep import RETRIED, Tried, ordered, resume_state, same_run

from .crew import Device, Say, Work, carry_out, seconds_left

#: In the telemetry of a measurement: which device of the fleet it was.
MEASURED_ON = "measured_on"

Progress = Callable[[int, int, Case], None]


@dataclass
class Kind:
    """Like devices, and what they did: ``earlier`` cases were in the bundle before, ``known`` ones were not asked."""

    bundle: Path
    run: Run
    devices: list[str]
    earlier: int = 0
    known: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    by_device: Counter[str] = field(default_factory=Counter)

    @property
    def settled(self) -> int:
        """Cases that this sitting settled."""
        return sum(self.counts.values())

    @property
    def left(self) -> int:
        """Cases that nobody came to."""
        return self.run.planned - self.earlier - self.settled


def _nothing(_run: Run) -> Collection[str]:
    return ()


@dataclass(frozen=True)
class Asked:
    """What a fleet is to measure. ``known`` gives the keys of cases that need not be measured in such a run."""

    suite: str
    cases: Sequence[Case]
    options: MeasureOptions
    told: dict[str, Scalar]
    costs: Costs
    deadline: float | None = None
    known: Callable[[Run], Collection[str]] = _nothing


def measure(
    devices: Sequence[Device], asked: Asked, out: Path, say: Say, progress: Progress | None = None
) -> list[Kind]:
    """Measure, and write what comes as it comes. The same call goes on with a bundle that was broken off."""
    groups: dict[str, list[Device]] = {}
    for device in devices:
        groups.setdefault(device.about.environment.hash + device.about.revision.id, []).append(device)
    parts = []
    with ExitStack() as held:
        for n, group in enumerate(groups.values(), 1):
            bundle = out if len(groups) == 1 else out.with_name(f"{out.stem}-{n}{out.suffix}")
            parts.append(_Part(group, asked, bundle, held.enter_context(BundleWriter(bundle)), say))
        total = sum(len(p.work.cases) for p in parts)

        def shown(case: Case) -> None:
            if progress is not None:
                progress(sum(p.kind.settled for p in parts), total, case)

        for p in parts:
            p.shown = shown
        try:
            carry_out([p.work for p in parts], say)
        finally:
            for p in parts:
                p.end()
    return [p.kind for p in parts]


class _Part:
    """One kind of device at work: what it is asked, and what becomes of what it sends."""

    def __init__(self, group: list[Device], asked: Asked, bundle: Path, writer: BundleWriter, say: Say) -> None:
        about = group[0].about
        wanted = Run(
            uuid.uuid4().hex, asked.suite, about.revision, about.environment, time.time(),
            options={**asked.told, "driver": "fleet"},
        )  # fmt: skip
        known = asked.known(wanted)
        cases = ordered([c for c in asked.cases if c.key not in known])
        wanted = replace(wanted, planned=len(cases))
        state = resume_state(bundle)
        self.asked, self.writer, self.say = asked, writer, say
        self.pending: dict[str, Tried] = {}
        if state.run is not None and same_run(state.run, wanted) and not state.complete:
            self.run, done, self.pending = state.run, state.done, dict(state.pending)
            say(f"resuming run {self.run.id} in {bundle}: {len(done)} of {self.run.planned} cases are done")
        else:
            self.run, done = wanted, frozenset()
            writer.run(self.run)
        self.kind = Kind(bundle, self.run, [d.name for d in group], len(done), len(asked.cases) - len(cases))
        todo = [c for c in cases if c.key not in done]
        self.work = Work(list(group), todo, asked.costs, self.ask, self.take, self.lost)
        self.shown: Callable[[Case], None] = lambda case: None

    def ask(self, device: Device, cases: Sequence[Case]) -> Any:
        """Start a device on its part."""
        method = device.actor.sweep.options(num_returns="streaming")
        return method.remote(
            list(cases), self.run, self.asked.options, dict(self.pending), seconds_left(self.asked.deadline)
        )

    def take(self, device: Device, what: str, record: Any) -> Case | None:
        """Write what a device sent; the case that it settles."""
        if what == "controls":
            self.writer.controls(self.run.id, record)
        elif what == "note":
            self.say(f"{device.name}: {record}")
        elif what == "measurement":
            return self._measured(record, device.name)
        return None

    def lost(self, case: Case) -> None:
        """A case that no host survives."""
        earlier = self.pending.get(case.key)
        number, why = earlier.attempts + 1 if earlier else 1, "its host was lost each time while it ran"
        self._measured(Measurement(case, Status.CRASHED, time.time(), detail=why, attempt=number), "", final=True)

    def _measured(self, m: Measurement, device: str, *, final: bool = False) -> Case | None:
        # The run says what its devices have in common; boards of one model differ a little all the same.
        self.writer.measurement(self.run.id, replace(m, telemetry={**m.telemetry, MEASURED_ON: device}))
        earlier = self.pending.get(m.case.key)
        failures = (earlier.failures if earlier else 0) + (m.status in RETRIED)
        tried = self.pending[m.case.key] = Tried(m.attempt, failures, m.status)
        if not (tried.settled or final):
            return None
        self.kind.counts[m.status.value] += 1
        self.kind.by_device[device] += 1
        self.shown(m.case)
        return m.case

    def end(self) -> None:
        """Close the run, complete or not."""
        measured = self.kind.earlier + self.kind.settled
        complete = measured >= self.run.planned
        self.writer.end(RunEnd(self.run.id, max(time.time(), self.run.started_at), complete, measured))
