"""The main job: sweep through asv, store, judge, measure suspects again, report. Broken off, it goes on where it was.

Where there is no git repository asv cannot work; the same suite is then measured without it, and the report says so.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from db.engine import Store, open_store
from db.queries import last_measured, latest_run, mean_durations, measurements_of_run

from .device import refuse_foreign_processes
from .ingest import ingest_bundle
from .locks import sweep_lock
from .model import InputError
from .night_sweep import Measured, NightlyOptions, NightPlan, Say, Show, measure_night, plan_night
from .policy.watching import PolicyWatch
from .retrying import WAITS
from .rotation import Costs, longest_ago, overhead, within
from .suites import find, load_suite
from .sweep import resume_state

__all__ = ["Measured", "NightlyOptions", "nightly"]


def nightly(options: NightlyOptions, show: Show, say: Say) -> dict[str, object]:
    """Do the whole job and return the report as plain values. Raises AttnwatchError where it cannot."""
    from .judge import JudgePlan, judge_night
    from .report import write_reports

    deadline = None if options.budget_s is None else time.time() + options.budget_s
    cases = load_suite(options.suite)
    refuse_foreign_processes(options.device)
    with sweep_lock(options.device, f"nightly --suite {options.suite}"), open_store(options.db) as store:
        plan = plan_night(options, cases, say)
        plan.notes += find().broken
        take_leftovers(options, store, plan.earlier, say)
        selected = None if deadline is None else choose(store, plan, deadline, say)
        measured = measure_night(plan, selected, deadline, show, say)
        say(f"storing {measured.bundle.name}")
        ingested = ingest_bundle(store, measured.bundle)
        # A night takes hours: what people want told is what they say when it ends.
        policy = PolicyWatch(options.policy, measured.notes.append).current()
        measured.notes += ingested.warnings
        judging = JudgePlan(
            device=options.device, repo=options.repo, kernels_root=str(measured.kernels.root),
            suite_given=options.suite, options=options.options, deadline=deadline, notes=tuple(measured.notes),
            bundle=str(measured.bundle), policy=policy,
        )  # fmt: skip
        report = judge_night(store, measured.run_id, judging, show, say)
        written = write_reports(report, options.reports)
        finish(options, measured.bundle)
    return {"report": report, "written": written}


def choose(store: Store, plan: NightPlan, deadline: float, say: Say) -> set[str] | None:
    """Put the cases measured longest ago first; keys of those that the budget is thought to hold, None for all.

    Without this the same head of the suite would be measured every night, and its tail never.
    """
    machine = plan.environment.machine.fingerprint
    plan.cases = longest_ago(plan.cases, last_measured(store, machine))
    done = resume_state(plan.earlier).done if plan.earlier else frozenset()
    todo = [c for c in plan.cases if c.key not in done]
    taken = within(todo, _costs(store, machine), deadline - time.time())
    if len(taken) == len(todo):
        return None
    say(f"the budget is thought to hold {len(taken)} of {len(todo)} cases; those measured longest ago come first")
    return {c.key for c in taken} | set(done)


def _costs(store: Store, machine: str) -> Costs:
    """What cases took on this machine, with what the last run there spent beside measuring."""
    durations = mean_durations(store, machine)
    last = latest_run(store, machine)
    if last is None or last.finished_at is None:
        return Costs(durations)
    ran = [m.duration_s for m in measurements_of_run(store, last.id) if m.case.key in durations and m.duration_s > 0]
    return Costs(durations, overhead(last.finished_at - last.started_at, ran))


def take_leftovers(options: NightlyOptions, store: Store, keep: Path | None, say: Say) -> None:
    """Store what earlier sweeps measured and could not store, except the bundle that is gone on with."""
    for path in sorted(options.bundles.glob("*.jsonl")) if options.bundles.is_dir() else []:
        if path == keep:
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
    options.session.unlink(missing_ok=True)
    (options.folder / "done.json").unlink(missing_ok=True)
    _archive(bundle)


def _archive(path: Path) -> None:
    archive = path.parent / "archive"
    archive.mkdir(parents=True, exist_ok=True)
    target = archive / path.name
    if target.exists():
        target = archive / f"{path.stem}-{time.time_ns()}{path.suffix}"
    shutil.move(path, target)
    for suffix in (".lock", WAITS):
        path.with_suffix(suffix).unlink(missing_ok=True)
