"""The main job: sweep through asv, store, judge, measure suspects again, report. Broken off, it goes on where it was.

Where there is no git repository asv cannot work; the same suite is then measured without it, and the report says so.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from db.engine import Store, open_store

from .asv_drive import CONFIG, log_tail, run_asv
from .asv_session import AsvSession, read_session
from .builds import Build, build, build_worktree, commit_of
from .bundle import BundleWriter, read_bundle
from .device import refuse_foreign_processes
from .ingest import ingest_bundle
from .locks import sweep_lock
from .model import (
    AttnwatchError,
    Case,
    InfrastructureError,
    InputError,
    Measurement,
    MeasureOptions,
    Reason,
    Run,
    RunEnd,
)  # fmt: skip
from .model.serde import to_plain
from .model.workloads import is_suite_file
from .revision import revision_of
from .suites import load_suite
from .sweep import RETRIED, resume_state, run_sweep
from .worker import WorkerClient, WorkerSpec

Show = Callable[[int, int, str], None]


@dataclass(frozen=True)
class NightlyOptions:
    """What one nightly is to do. ``folder`` keeps bundles, the session and logs; ``reports`` the reports."""

    suite: str
    device: str
    repo: Path
    db: str | None = None
    reports: Path = Path("reports")
    budget_s: float | None = None
    reason: Reason = Reason.NIGHTLY
    options: MeasureOptions = field(default_factory=MeasureOptions)

    @property
    def suite_address(self) -> str:
        """The suite as processes with another working folder find it."""
        return str(Path(self.suite).absolute()) if is_suite_file(self.suite) else self.suite

    @property
    def folder(self) -> Path:
        """Where the work in progress lies."""
        return self.repo / ".asv" / "nightly"


@dataclass
class Measured:
    """The sweep's outcome: its bundle, the kernels it ran, and words about how it went."""

    bundle: Path
    run_id: str
    kernels: Build
    notes: list[str]


def nightly(options: NightlyOptions, show: Show, say: Callable[[str], None]) -> dict[str, object]:
    """Do the whole job and return the report as plain values. Raises AttnwatchError where it cannot."""
    from .judge import JudgePlan, judge_night
    from .report import write_reports

    deadline = None if options.budget_s is None else time.time() + options.budget_s
    cases = load_suite(options.suite)
    refuse_foreign_processes(options.device)
    with sweep_lock(options.device, f"nightly --suite {options.suite}"), open_store(options.db) as store:
        take_leftovers(options, store, say)
        measured = measure(options, cases, deadline, show, say)
        say(f"storing {measured.bundle.name}")
        ingested = ingest_bundle(store, measured.bundle)
        measured.notes += ingested.warnings
        plan = JudgePlan(
            device=options.device, repo=options.repo, kernels_root=str(measured.kernels.root),
            suite_given=options.suite, options=options.options, deadline=deadline, notes=tuple(measured.notes),
            bundle=str(measured.bundle),
        )  # fmt: skip
        report = judge_night(store, measured.run_id, plan, show, say)
        written = write_reports(report, options.reports)
        finish(options, measured.bundle)
    return {"report": report, "written": written}


def measure(
    options: NightlyOptions, cases: list[Case], deadline: float | None, show: Show, say: Callable[[str], None]
) -> Measured:
    """The sweep, through asv where there is a repository."""
    try:
        commit = commit_of(options.repo, "HEAD")
        with_asv = (options.repo / CONFIG).is_file()
    except AttnwatchError as err:
        say(f"no commit to measure ({err}); measuring the working tree without asv")
        with_asv, commit = False, ""
    if not with_asv:
        return _without_asv(options, cases, deadline, show)
    return _with_asv(options, cases, commit, deadline, show, say)


def _with_asv(
    options: NightlyOptions,
    cases: list[Case],
    commit: str,
    deadline: float | None,
    show: Show,
    say: Callable[[str], None],
) -> Measured:
    kernels = build(options.repo, commit)
    session_path = options.folder / "session.json"
    session, resumed = _session(options, session_path, commit, len(cases), deadline)
    if resumed:
        say(f"going on with the interrupted sweep of {commit[:12]}")
    notes = []
    if revision_of(options.repo).dirty:
        notes.append("kernels/ has uncommitted changes; the commit was measured, not they")
    log = options.folder / "asv.log"
    total, began = len(cases), time.monotonic()

    def look() -> None:
        done, last = _progress(_bundle(session, commit), total)
        show(done, total, last if done or time.monotonic() - began > 20 else "asv prepares its environment")

    try:
        code = run_asv(options.repo, commit, session_path, log, done=look)
    except KeyboardInterrupt:
        done, _ = _progress(_bundle(session, commit), total)
        say(f"interrupted; {done} of {total} cases are kept, and the same command goes on from there")
        raise
    path = _bundle(session, commit)
    if path is None:
        raise InfrastructureError(f"asv measured nothing (exit code {code}); the end of {log}:\n{log_tail(log)}")
    if code not in (0, 2):
        notes.append(f"asv ended with exit code {code}; see {log}")
    return Measured(path, _close(path, options, total), kernels, notes)


def _session(
    options: NightlyOptions, path: Path, commit: str, planned: int, deadline: float | None
) -> tuple[AsvSession, bool]:
    """The session to run: an interrupted one of the same work, or a new one."""
    old = None
    if path.exists():
        try:
            old = read_session(path)
        except InputError:
            path.unlink()
    if old is not None and (old.suite, old.device, old.planned) == (options.suite_address, options.device, planned):
        bundle = _bundle(old, commit)
        if bundle is not None:
            done_file = options.folder / "done.json"
            done_file.write_text(json.dumps(_done(bundle)), encoding="utf-8")
            session = AsvSession(
                old.bundle_dir,
                old.suite,
                old.device,
                options.reason,
                planned,
                deadline,
                str(done_file),
                old.tag,
                options.options,
            )
            session.save(path)
            return session, True
    session = AsvSession(
        str(options.folder / "bundles"), options.suite_address, options.device, options.reason, planned, deadline, None,
        time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + "-" + uuid.uuid4().hex[:4], options.options,
    )  # fmt: skip
    session.save(path)
    return session, False


def _bundle(session: AsvSession, commit: str) -> Path | None:
    """The bundle of a session, whatever kernels hash its name carries."""
    found = sorted(Path(session.bundle_dir).glob(f"{session.suite_name}-{commit[:12]}-*-{session.tag}.jsonl"))
    return found[0] if found else None


def _done(bundle: Path) -> dict[str, object]:
    """Measurements that an interrupted sweep need not repeat, by case key."""
    kept: dict[str, object] = {}
    for line in read_bundle(bundle):
        m = line.record
        if isinstance(m, Measurement) and not (m.status in RETRIED and m.attempt == 1):
            kept[m.case.key] = to_plain(m)
    return kept


def _progress(bundle: Path | None, total: int) -> tuple[int, str]:
    """Cases done so far and words for the newest, read from the end of the bundle."""
    if bundle is None:
        return 0, ""
    lines = bundle.read_bytes().splitlines()
    done = sum(b'"kind":"measurement"' in x[:60] and b'"attempt":2' not in x[-4000:] for x in lines)
    text = ""
    try:
        case = json.loads(lines[-1]).get("case") if lines else None
        text = f"{case['backend']} {case['workload']['params']}" if case else ""
    except ValueError:
        pass
    return min(done, total), text.translate({ord(c): None for c in "{}'"})


def _close(path: Path, options: NightlyOptions, planned: int) -> str:
    """Measure the controls again and end the run in the bundle; nothing where that was done."""
    run, ended, keys = None, False, set()
    for line in read_bundle(path):
        if isinstance(line.record, Run):
            run = line.record
        elif isinstance(line.record, Measurement):
            keys.add(line.record.case.key)
        ended = ended or isinstance(line.record, RunEnd)
    if run is None:
        raise InputError(f"{path}: holds no run; remove the file and start again")
    if not ended:
        with BundleWriter(path) as writer:
            root = str(Path(run.environment.kernels_path).parent)
            with WorkerClient.connect(WorkerSpec(options.device, kernels=root)) as client:
                writer.controls(run.id, client.controls(options.options))
            writer.end(RunEnd(run.id, time.time(), complete=len(keys) >= planned, measured=len(keys)))
    return run.id


def _without_asv(options: NightlyOptions, cases: list[Case], deadline: float | None, show: Show) -> Measured:
    """The same suite straight through the worker, with the kernels of the working tree."""
    kernels = build_worktree(options.repo)
    path = options.folder / "bundles" / f"{Path(options.suite).stem}-{kernels.commit}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    state = resume_state(path)
    if state.complete:
        _archive(path)
        state = resume_state(path)
    with WorkerClient.connect(WorkerSpec(options.device, kernels=str(kernels.root))) as client:
        environment = client.environment()
        run = state.run or Run(
            uuid.uuid4().hex, Path(options.suite).stem, revision_of(options.repo), environment, time.time(),
            options.reason, len(cases), options={"driver": "worker"},
        )  # fmt: skip
        with BundleWriter(path) as writer:
            summary = run_sweep(
                cases, run=run, client=client, writer=writer, options=options.options, deadline=deadline,
                done=state.done, write_run=state.run is None,
                progress=lambda e: show(e.index + 1, e.total, e.case.backend if e.case else ""),
            )  # fmt: skip
    if summary.interrupted:
        raise KeyboardInterrupt
    return Measured(path, run.id, kernels, ["measured without asv: no git commit or no asv.conf.json"])


def take_leftovers(options: NightlyOptions, store: Store, say: Callable[[str], None]) -> None:
    """Store what earlier sweeps measured and could not store, except the one that is to be resumed."""
    folder = options.folder / "bundles"
    keep = None
    session = options.folder / "session.json"
    if session.exists():
        try:
            keep = read_session(session).tag
        except InputError:
            session.unlink()
    for path in sorted(folder.glob("*.jsonl")) if folder.is_dir() else []:
        if (keep and keep in path.name) or "worktree" in path.name:
            continue
        try:
            report = ingest_bundle(store, path)
        except InputError as err:
            say(f"left aside: {err}")
            path.rename(path.with_suffix(".bad"))
            continue
        if report.taken:
            say(f"stored {report.taken} measurements that an earlier sweep had left in {path.name}")
        _archive(path)


def finish(options: NightlyOptions, bundle: Path) -> None:
    """The work is stored and reported: put the bundle away and forget the session."""
    (options.folder / "session.json").unlink(missing_ok=True)
    (options.folder / "done.json").unlink(missing_ok=True)
    _archive(bundle)


def _archive(path: Path) -> None:
    archive = path.parent / "archive"
    archive.mkdir(parents=True, exist_ok=True)
    target = archive / path.name
    if target.exists():
        target = archive / f"{path.stem}-{time.time_ns()}{path.suffix}"
    shutil.move(path, target)
    path.with_suffix(".lock").unlink(missing_ok=True)
