"""A sweep without asv: cases in a good order through one worker into a bundle, resumable at any point."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from harness.bundle import BundleWriter
from harness.bundle_lines import lines, record_at
from harness.model import (
    Case,
    InfrastructureError,
    InputError,
    Measurement,
    MeasureOptions,
    Run,
    RunEnd,
    Scalar,
    Status,
)
from harness.retrying import Backoff
from harness.rotation import grouped
from harness.worker import WorkerClient

#: A case that ends so is measured once more; the second ending stands.
RETRIED = frozenset(s for s in Status if s.failed)

#: Why a case was left out of a run.
BUDGET_ENDED = "the budget had ended; the next night begins with it"

#: The control kernels are measured at both ends and after so many cases.
CONTROLS_EVERY = 25


@dataclass(frozen=True)
class SweepEvent:
    """What a sweep tells while it goes on.

    ``begin`` comes before a case, ``case`` after it with the measurement, ``retry`` after a failure that is tried
    again, ``note`` with a text for people. ``index`` counts from 0 over the ``total`` cases of this sitting;
    ``eta_s`` is None until something was measured.
    """

    kind: Literal["begin", "case", "retry", "note"]
    index: int
    total: int
    case: Case | None = None
    measurement: Measurement | None = None
    elapsed_s: float = 0.0
    eta_s: float | None = None
    text: str = ""


@dataclass(frozen=True)
class SweepSummary:
    """What a sweep did. ``remaining`` cases were left out by the deadline or an interruption."""

    counts: dict[Status, int] = field(default_factory=dict)
    measured: int = 0
    remaining: int = 0
    interrupted: bool = False
    measurements: list[Measurement] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether every case asked for is in the bundle."""
        return self.remaining == 0 and not self.interrupted


class Tried(NamedTuple):
    """What a run holds of one case: the highest attempt, how many of them failed, and how the last one ended."""

    attempts: int
    failures: int
    status: str

    @property
    def settled(self) -> bool:
        """Nothing is left to do: it ran, or failed twice, or cannot be asked of the backend."""
        return self.status != Status.DESELECTED and (self.status not in RETRIED or self.failures > 1)


class ResumeState(NamedTuple):
    """What a bundle holds of its last run.

    ``done`` are keys of the settled cases, ``pending`` the others that have a record (left out by a budget, or
    failed once), ``complete`` whether the run was closed as complete.
    """

    run: Run | None = None
    done: AbstractSet[str] = frozenset()
    complete: bool = False
    pending: Mapping[str, Tried] = MappingProxyType({})


def deselected(case: Case, why: str, attempt: int = 1) -> Measurement:
    """The record of a case that was left out on purpose."""
    return Measurement(case, Status.DESELECTED, time.time(), detail=why, attempt=attempt)


def ordered(cases: Sequence[Case]) -> list[Case]:
    """Cases with those of one workload side by side, workloads in order of first appearance.

    The oracle's result is computed once per workload and shared by the backends that follow each other.
    """
    return [case for group in grouped(cases) for case in group]


def run_sweep(
    cases: Sequence[Case],
    *,
    run: Run,
    client: WorkerClient,
    writer: BundleWriter,
    options: MeasureOptions,
    progress: Callable[[SweepEvent], None] | None = None,
    done: Collection[str] = (),
    pending: Mapping[str, Tried] = MappingProxyType({}),
    deadline: float | None = None,
    write_run: bool = True,
    deselect: bool = False,
) -> SweepSummary:
    """Measure ``cases`` and append each result to the bundle as it comes.

    ``done`` and ``pending`` are what :func:`resume_state` says of the bundle; pass ``write_run=False`` when it holds
    the run. ``deadline`` is a time of ``time.time()`` after which no case begins; with ``deselect`` the cases that
    it leaves out are recorded as such, for a run that nobody will go on with. Ctrl-C ends the sweep with what was
    measured, ``interrupted`` set. Errors of infrastructure pass through after the run was closed as incomplete.
    """
    todo = [c for c in ordered(cases) if c.key not in done]
    sweep = _Sweep(run, client, writer, options, progress or (lambda event: None), len(todo))
    if write_run:
        writer.run(run)
    left, interrupted = len(todo), False
    try:
        sweep.controls()
        for index, case in enumerate(todo):
            if deadline is not None and time.time() >= deadline:
                break
            sweep.measure(index, case, pending.get(case.key))
            left -= 1
            if (index + 1) % CONTROLS_EVERY == 0 and left:
                sweep.controls()
        if todo:
            sweep.controls()
        for case in todo[len(todo) - left :] if deselect else ():
            if case.key not in pending:
                writer.measurement(run.id, deselected(case, BUDGET_ENDED))
    except KeyboardInterrupt:
        interrupted = True
    except BaseException:
        sweep.end(complete=False, earlier=len(done))
        raise
    sweep.end(complete=left == 0 and not interrupted, earlier=len(done))
    counts = Counter(m.status for m in sweep.measurements)
    return SweepSummary(dict(counts), len(sweep.measurements), left, interrupted, sweep.measurements)


@dataclass
class _Sweep:
    run: Run
    client: WorkerClient
    writer: BundleWriter
    options: MeasureOptions
    tell: Callable[[SweepEvent], None]
    total: int
    measurements: list[Measurement] = field(default_factory=list)
    backoff: Backoff = field(default_factory=Backoff)
    started: float = field(default_factory=time.monotonic)

    def measure(self, index: int, case: Case, earlier: Tried | None) -> None:
        """One case, once more if it fails, unless it failed in an earlier sitting."""
        attempt = earlier.attempts + 1 if earlier else 1
        self.tell(self._event("begin", index, case))
        m = self._attempt(case, attempt)
        if m.status in RETRIED and not (earlier and earlier.failures):
            self.tell(self._event("retry", index, case, m))
            time.sleep(self.backoff.before(m.status))
            first, m = m.status, self._attempt(case, attempt + 1)
            self.backoff.after(first, m.status)
        self.measurements.append(m)
        self.tell(self._event("case", index, case, m))

    def controls(self) -> None:
        """The control kernels; a failure is told, since the cases may do better."""
        try:
            self.writer.controls(self.run.id, self.client.controls(self.options))
        except (InfrastructureError, InputError) as error:
            done = len(self.measurements)
            self.tell(SweepEvent("note", done, self.total, text=f"control kernels were not measured: {error}"))

    def end(self, *, complete: bool, earlier: int) -> None:
        """Close the run; a clock that was set back since it began ends it at its start, not before."""
        now = max(time.time(), self.run.started_at)
        self.writer.end(RunEnd(self.run.id, now, complete, earlier + len(self.measurements)))

    def _attempt(self, case: Case, attempt: int) -> Measurement:
        m = replace(self.client.measure(case, self.options), attempt=attempt)
        self.writer.measurement(self.run.id, m)
        return m

    def _event(
        self, kind: Literal["begin", "case", "retry"], index: int, case: Case, m: Measurement | None = None
    ) -> SweepEvent:
        elapsed, n = time.monotonic() - self.started, len(self.measurements)
        eta = elapsed / n * (self.total - n) if n else None
        return SweepEvent(kind, index, self.total, case, m, elapsed, eta)


def resume_state(path: str | Path) -> ResumeState:
    """What the last run of a bundle holds; an empty state for a file that does not exist or holds no run.

    Standard library only, unlike :func:`harness.bundle.read_bundle`, so that a bare GPU image can resume. A cut
    last line is passed over. Whether the run is one to go on with is for :func:`same_run` to say.
    """
    run: Run | None = None
    tried: dict[str, Tried] = {}
    complete = False
    for place, record in lines(Path(path)):
        kind = record["kind"]
        if kind == "run":
            run, tried, complete = record_at(place, Run, record), {}, False
        elif run is None or record.get("run_id") != run.id:
            continue
        elif kind == "measurement":
            key = record_at(place, Case, record.get("case")).key
            tried[key] = _tried(tried.get(key), record)
        elif kind == "end":
            complete = record.get("complete") is True
    pending = {k: t for k, t in tried.items() if not t.settled}
    return ResumeState(run, tried.keys() - pending.keys(), complete, pending)


def run_options(options: MeasureOptions, **more: Scalar) -> dict[str, Scalar]:
    """What a run records of how it was asked for; ``driver`` and the like come in as ``more``."""
    return {**{k: v for k, v in asdict(options).items() if v is not None}, **more}


def same_run(found: Run, wanted: Run) -> bool:
    """Whether ``found`` may be gone on with where ``wanted`` is asked for.

    Both must be of one suite, revision and environment, with the same options and number of cases: whatever else
    went into one run would be told as one measuring of one thing.
    """
    return (found.suite, found.revision.id, found.environment.hash, found.options, found.planned) == (
        wanted.suite, wanted.revision.id, wanted.environment.hash, wanted.options, wanted.planned,
    )  # fmt: skip


def _tried(before: Tried | None, record: dict[str, Any]) -> Tried:
    status, attempt = str(record.get("status")), record.get("attempt", 1)
    failures = (before.failures if before else 0) + (status in RETRIED)
    return Tried(max(before.attempts if before else 0, attempt), failures, status)
