"""Measuring for one night: through asv where there is a repository, straight through the worker for the rest.

What is planned says which kernels are measured and whether an interrupted bundle is gone on with; measuring appends
to that bundle or a new one, and closes its run.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from .asv_child import asv_run_options
from .asv_drive import CONFIG, log_tail, run_asv
from .asv_session import AsvSession, Earlier, read_session
from .builds import Build, build, build_worktree, commit_of
from .bundle import BundleWriter, read_bundle
from .bundle_lines import BundleCounter, head_of
from .hashing import content_hash
from .model import (
    AttnwatchError,
    Case,
    Environment,
    InfrastructureError,
    InputError,
    Measurement,
    MeasureOptions,
    Reason,
    Revision,
    Run,
    Scalar,
)
from .model.serde import to_plain
from .model.workloads import is_suite_file, suite_name
from .policy import Policy
from .revision import commit_revision, revision_of
from .suites import asv_keys, outside_modules
from .sweep import ResumeState, SweepEvent, SweepSummary, resume_state, run_options, run_sweep, same_run
from .worker import WorkerClient, WorkerSpec

Show = Callable[[int, int, str], None]
Say = Callable[[str], None]


@dataclass(frozen=True)
class NightlyOptions:
    """What one nightly is to do. ``folder`` keeps bundles, the session and logs; ``reports`` the reports.

    ``policy`` says what is worth telling.
    """

    suite: str
    device: str
    repo: Path
    db: str | None = None
    reports: Path = Path("reports")
    budget_s: float | None = None
    reason: Reason = Reason.NIGHTLY
    options: MeasureOptions = field(default_factory=MeasureOptions)
    policy: Policy = field(default_factory=Policy)

    @property
    def suite_address(self) -> str:
        """The suite as processes with another working folder find it."""
        return str(Path(self.suite).absolute()) if is_suite_file(self.suite) else self.suite

    @property
    def folder(self) -> Path:
        """Where the work in progress lies."""
        return self.repo / ".asv" / "nightly"

    @property
    def bundles(self) -> Path:
        """Where bundles lie until they are stored and judged."""
        return self.folder / "bundles"

    @property
    def session(self) -> Path:
        """The session file of the sweep under asv."""
        return self.folder / "session.json"


@dataclass
class Measured:
    """The sweep's outcome: its bundle, the kernels it ran, and words about how it went."""

    bundle: Path
    run_id: str
    kernels: Build
    notes: list[str]


@dataclass
class NightPlan:
    """What is measured tonight: ``cases`` of the ``kernels`` of ``revision``, through asv where ``commit`` is not None.

    ``earlier`` is the bundle of an interrupted sweep of the same work, which is gone on with; ``tag`` is the name of
    the session that it belongs to.
    """

    options: NightlyOptions
    cases: list[Case]
    kernels: Build
    revision: Revision
    commit: str | None = None
    tag: str = ""
    earlier: Path | None = None
    notes: list[str] = field(default_factory=list)

    @cached_property
    def spec(self) -> WorkerSpec:
        """The worker with tonight's kernels."""
        modules = outside_modules({c.backend for c in self.cases})
        return WorkerSpec(self.options.device, kernels=str(self.kernels.root), modules=modules)

    @cached_property
    def environment(self) -> Environment:
        """What surrounds the kernels; starts a worker when first asked for."""
        with WorkerClient.connect(self.spec) as client:
            return client.environment()

    @cached_property
    def through_asv(self) -> set[str]:
        """Keys of the cases that asv runs; suites of other packages are measured after it."""
        return asv_keys(self.options.suite_address) if self.commit is not None else set()

    def run(self, session: AsvSession | None) -> Run:
        """The run that tonight's measuring is, or begins."""
        o = self.options
        asked: dict[str, Scalar] = (
            run_options(o.options, driver="worker") if session is None else asv_run_options(session)
        )
        return Run(
            uuid.uuid4().hex, suite_name(o.suite), self.revision, self.environment, time.time(), o.reason,
            len(self.cases), options=asked,
        )  # fmt: skip

    def session(self, deadline: float | None, selected: set[str] | None, done_file: Path | None) -> AsvSession:
        """What asv's children are told."""
        o = self.options
        return AsvSession(
            str(o.bundles), o.suite_address, o.device, o.reason, len(self.cases), deadline,
            str(done_file) if done_file else None, self.tag, o.options,
            tuple(sorted(selected)) if selected is not None else None,
        )  # fmt: skip


def plan_night(options: NightlyOptions, cases: list[Case], say: Say) -> NightPlan:
    """Which kernels are measured, by which way, and what an interrupted sweep left to go on with."""
    try:
        commit = commit_of(options.repo, "HEAD")
        with_asv = (options.repo / CONFIG).is_file()
    except AttnwatchError as err:
        say(f"no commit to measure ({err}); measuring the working tree without asv")
        with_asv, commit = False, ""
    if not with_asv:
        kernels = build_worktree(options.repo)
        plan = NightPlan(options, cases, kernels, revision_of(options.repo))
        plan.notes.append("measured without asv: no git commit or no asv.conf.json")
        plan.earlier = _interrupted(plan)
    else:
        kernels = build(options.repo, commit)
        digest = content_hash(kernels.root / "kernels")
        plan = NightPlan(options, cases, kernels, commit_revision(options.repo, commit, digest), commit)
        if revision_of(options.repo).dirty:
            plan.notes.append("kernels/ has uncommitted changes; the commit was measured, not they")
        plan.tag = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + "-" + uuid.uuid4().hex[:4]
        _take_up_session(plan)
    if plan.earlier is not None:
        say(f"going on with the interrupted sweep of {(plan.commit or plan.kernels.commit)[:12]}")
    return plan


def _interrupted(plan: NightPlan) -> Path | None:
    """The newest bundle of the same work without asv that is not stored and judged yet."""
    found: list[tuple[float, Path]] = []
    folder = plan.options.bundles
    for path in folder.iterdir() if folder.is_dir() else ():
        head = head_of(path) if path.suffix == ".jsonl" else None
        if head is not None and head.options.get("driver") == "worker" and same_run(head, plan.run(None)):
            found.append((head.started_at, path))
    return max(found)[1] if found else None


def _take_up_session(plan: NightPlan) -> None:
    """Go on with the session that was broken off, where it measured the same work."""
    options = plan.options
    try:
        old = read_session(options.session)
    except InputError:
        options.session.unlink(missing_ok=True)
        return
    bundle = old.find_bundle(plan.commit or "")
    head = head_of(bundle) if bundle is not None else None
    if head is None or (old.suite, old.device) != (options.suite_address, options.device):
        return
    if same_run(head, plan.run(replace(old, options=options.options))):
        plan.tag, plan.earlier = old.tag, bundle


def measure_night(plan: NightPlan, selected: set[str] | None, deadline: float | None, show: Show, say: Say) -> Measured:
    """Measure what is planned. ``selected`` are keys of the cases that the budget is thought to hold, None for all.

    ``plan.cases`` are measured in their order where asv does not drive. What asv did not get to (suites of other
    packages, cases beyond the selection while there is time) is measured after it, into the same run.
    """
    path = _asv(plan, selected, deadline, show, say) if plan.through_asv else plan.earlier
    summary, path, run_id = _rest(plan, path, deadline, show)
    if summary.interrupted:
        say(f"interrupted; what was measured is kept in {path.name}, and the same command goes on from there")
        raise KeyboardInterrupt
    notes = list(plan.notes)
    if summary.remaining:
        notes.append(
            f"the budget left {summary.remaining} of {len(plan.cases)} cases for the next night, which begins with them"
        )
    return Measured(path, run_id, plan.kernels, notes)


def _asv(plan: NightPlan, selected: set[str] | None, deadline: float | None, show: Show, say: Say) -> Path:
    """The sweep through asv; the bundle that it filled."""
    options, commit = plan.options, plan.commit
    assert commit is not None
    done_file = _write_done(plan.earlier, options.folder / "done.json") if plan.earlier else None
    session = plan.session(deadline, selected, done_file)
    session.save(options.session)
    log = options.folder / "asv.log"
    total, began = len(plan.cases), time.monotonic()
    counter = BundleCounter(plan.earlier) if plan.earlier else None

    def look() -> None:
        nonlocal counter
        if counter is None and (found := session.find_bundle(commit)) is not None:
            counter = BundleCounter(found)
        if counter is None or not counter.look().last:
            show(0, total, "asv prepares its environment" if time.monotonic() - began <= 20 else "")
        elif counter.last is not None:
            show(counter.done, total, f"{counter.last.backend} {counter.last.workload.label}")

    try:
        code = run_asv(options.repo, commit, options.session, log, done=look)
    except KeyboardInterrupt:
        look()
        kept = counter.measured if counter else 0
        say(f"interrupted; {kept} of {total} cases are kept, and the same command goes on from there")
        raise
    path = session.find_bundle(commit)
    if path is None:
        raise InfrastructureError(f"asv measured nothing (exit code {code}); the end of {log}:\n{log_tail(log)}")
    if code not in (0, 2):
        plan.notes.append(f"asv ended with exit code {code}; see {log}")
    return path


def _write_done(bundle: Path, path: Path) -> Path:
    """What an interrupted sweep holds of each case, for asv's children."""
    state = resume_state(bundle)
    found = {key: Earlier(t.attempts, t.failures) for key, t in state.pending.items()}
    for line in read_bundle(bundle):
        m = line.record
        if isinstance(m, Measurement) and m.case.key in state.done:
            found[m.case.key] = Earlier(m.attempt, 0, m)
    path.write_text(json.dumps({k: to_plain(e) for k, e in found.items()}), encoding="utf-8")
    return path


def _rest(plan: NightPlan, path: Path | None, deadline: float | None, show: Show) -> tuple[SweepSummary, Path, str]:
    """Measure what the bundle lacks and close its run; the whole suite where asv does not drive."""
    options = plan.options
    state = resume_state(path) if path is not None else ResumeState()
    run = state.run or plan.run(None)
    if path is None:
        options.bundles.mkdir(parents=True, exist_ok=True)
        path = options.bundles / f"{run.suite}-{plan.revision.kernels_hash}-{run.id[:8]}.jsonl"
    todo = [c for c in plan.cases if c.key not in state.done]
    if state.complete and not todo:
        return SweepSummary(), path, run.id
    before = len(plan.cases) - len(todo)

    def tell(event: SweepEvent) -> None:
        if event.case is not None:
            show(before + event.index, len(plan.cases), f"{event.case.backend} {event.case.workload.label}")

    with WorkerClient.connect(plan.spec) as client, BundleWriter(path) as writer:
        summary = run_sweep(
            todo, run=run, client=client, writer=writer, options=options.options, progress=tell, done=state.done,
            pending=state.pending, deadline=deadline, write_run=state.run is None, deselect=True,
        )  # fmt: skip
    return summary, path, run.id
