"""A sweep without asv: cases in a good order through one worker into a bundle, resumable at any point."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from harness.bundle import BundleWriter
from harness.model import (
    Case,
    InfrastructureError,
    InputError,
    Measurement,
    MeasureOptions,
    Run,
    RunEnd,
    Status,
)
from harness.model.serde import from_plain
from harness.worker import WorkerClient

T = TypeVar("T")

#: A case that ends so is measured once more; the second ending stands.
RETRIED = frozenset(s for s in Status if s.failed)

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


class ResumeState(NamedTuple):
    """What a bundle holds of its last run: the run, keys of the cases done, whether it was closed as complete."""

    run: Run | None
    done: set[str]
    complete: bool


def ordered(cases: Sequence[Case]) -> list[Case]:
    """Cases with those of one workload side by side, workloads in order of first appearance.

    The oracle's result is computed once per workload and shared by the backends that follow each other.
    """
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.workload.operation, case.workload.label), []).append(case)
    return [case for group in groups.values() for case in group]


def run_sweep(
    cases: Sequence[Case],
    *,
    run: Run,
    client: WorkerClient,
    writer: BundleWriter,
    options: MeasureOptions,
    progress: Callable[[SweepEvent], None] | None = None,
    done: Collection[str] = (),
    failed_once: Collection[str] = (),
    deadline: float | None = None,
    write_run: bool = True,
) -> SweepSummary:
    """Measure ``cases`` and append each result to the bundle as it comes.

    ``done`` are keys of cases that the bundle holds already and ``failed_once`` of those that had their first
    attempt; pass ``write_run=False`` when it holds the run too. ``deadline`` is a time of ``time.time()`` after
    which no case begins. Ctrl-C ends the sweep with what was measured, ``interrupted`` set. Errors of
    infrastructure pass through after the run was closed as incomplete.
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
            sweep.measure(index, case, second=case.key in failed_once)
            left -= 1
            if (index + 1) % CONTROLS_EVERY == 0 and left:
                sweep.controls()
        if todo:
            sweep.controls()
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
    started: float = field(default_factory=time.monotonic)

    def measure(self, index: int, case: Case, *, second: bool) -> None:
        """One case, once more if it fails, unless the first attempt was in an earlier sitting."""
        self.tell(self._event("begin", index, case))
        m = self._attempt(case, 2 if second else 1)
        if m.status in RETRIED and not second:
            self.tell(self._event("retry", index, case, m))
            m = self._attempt(case, 2)
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
        """Close the run."""
        self.writer.end(RunEnd(self.run.id, time.time(), complete, earlier + len(self.measurements)))

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
    """What the last run of a bundle holds; ``(None, set(), False)`` for a file that does not exist or has none.

    Standard library only, unlike :func:`harness.bundle.read_bundle`, so that a bare GPU image can resume. A cut
    last line is passed over. Cases that failed their first attempt only are not among ``done``; see
    :func:`failed_once`. Whether the run is of the same suite, revision and environment is for the caller to compare.
    """
    run: Run | None = None
    done: set[str] = set()
    complete = False
    for place, record in _records(Path(path)):
        kind = record.pop("kind")
        record.pop("schema", None)
        if kind == "run":
            run, done, complete = _at(place, Run, record), set(), False
        elif run is not None and kind == "measurement" and record.get("run_id") == run.id:
            if not _first_failure(record):
                done.add(_at(place, Case, record.get("case")).key)
        elif run is not None and kind == "end" and record.get("run_id") == run.id:
            complete = record.get("complete") is True
    return ResumeState(run, done, complete)


def failed_once(path: str | Path) -> set[str]:
    """Keys of the cases of the last run whose first attempt failed and whose second is missing."""
    state = resume_state(path)
    keys = set()
    for place, record in _records(Path(path)):
        if state.run is not None and record["kind"] == "measurement" and record.get("run_id") == state.run.id:
            keys.add(_at(place, Case, record.get("case")).key)
    return keys - state.done


def _first_failure(record: dict[str, Any]) -> bool:
    return record.get("attempt", 1) == 1 and record.get("status") in {s.value for s in RETRIED}


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{path}: cannot read this bundle: {error.strerror}") from None
    with file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError:
                if not line.endswith(b"\n"):
                    return  # cut off while it was written
                record = None
            if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
                raise InputError(f"{path}:{number}: not a line of a bundle; name another file")
            yield f"{path}:{number}", record


def _at(place: str, cls: type[T], plain: object) -> T:
    try:
        return from_plain(cls, plain)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
