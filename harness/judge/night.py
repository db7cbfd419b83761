"""Judging one night: screen, confirm, gather, save, and the report that says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from db.engine import Store
from db.queries import RunRow, counts_by_status, measurements_of_run, run, runs
from harness.builds import build, git
from harness.detection.ab import ABOptions
from harness.model import AttnwatchError, MeasureOptions, Revision, Status
from harness.model.findings import Finding, Incident, NightReport
from harness.worker import WorkerSpec

from .confirm import ConfirmPlan, confirm
from .incidents import gather, save
from .suspects import Judged, base_runs, judge_run

if TYPE_CHECKING:
    from harness.nightly import Measured, NightlyOptions

#: Confirmation may take as long as this where no budget is given.
_CONFIRM_S = 180.0


def judge_night(
    store: Store, measured: Measured, options: NightlyOptions, deadline: float | None,
    show: Callable[[int, int, str], None], say: Callable[[str], None],
) -> NightReport:  # fmt: skip
    """Judge the run that was just stored and save its incidents."""
    head = run(store, measured.run_id)
    assert head is not None
    judged = judge_run(store, head.machine, head.id)
    earlier = base_runs(store, head.machine, head.id, [f.case for f in judged.findings])
    base = _base(store, earlier) or _previous(store, head)
    changed, differences = _what_changed(options, base, head)
    findings = judged.findings
    if findings:
        say(f"{len(findings)} suspects are measured again")
        limit = time.time() + _CONFIRM_S if deadline is None else max(deadline, time.time() + 30)
        plan = ConfirmPlan(
            head=WorkerSpec(options.device, kernels=str(measured.kernels.root)),
            base=_base_worker(options, base, head), changed=changed, options=MeasureOptions(max_seconds=0.5),
            judge=ABOptions(), deadline=limit,
        )  # fmt: skip
        findings = confirm(
            findings, plan, lambda i, n, case: show(i, n, f"again: {case.backend} {case.workload.label}")
        )
    incidents = gather(findings, head.revision, judged.compared)
    save(
        store, incidents, machine=head.machine, base_run=base.id if base else None, head_run=head.id,
        first_bad=head.revision, last_good=base.revision if base else None, suspects_from=differences,
    )  # fmt: skip
    return _report(store, head, base, measured, options, findings, judged, incidents, differences)


def _base(store: Store, earlier: dict[str, str]) -> RunRow | None:
    """The newest run that any suspect is compared with."""
    found = [r for name in dict.fromkeys(earlier.values()) if (r := run(store, name)) is not None]
    return max(found, key=lambda r: r.started_at, default=None)


def _previous(store: Store, head: RunRow) -> RunRow | None:
    """The run before this one on the same machine."""
    return next((r for r in runs(store, machine=head.machine, limit=20) if r.started_at < head.started_at), None)


def _base_worker(options: NightlyOptions, base: RunRow | None, head: RunRow) -> WorkerSpec | None:
    """A worker with the kernels of the earlier run, where git has them and they differ."""
    if base is None or base.commit is None or base.kernels_hash == head.kernels_hash:
        return None
    try:
        return WorkerSpec(options.device, kernels=str(build(options.repo, base.commit).root))
    except AttnwatchError:
        return None


def _what_changed(options: NightlyOptions, base: RunRow | None, head: RunRow) -> tuple[bool, list[str]]:
    """Whether anything differs between the runs, and what, nearest first."""
    if base is None:
        return True, []
    told: list[str] = []
    if base.kernels_hash != head.kernels_hash:
        told += _commits(options, base, head) or [f"kernels {base.kernels_hash} -> {head.kernels_hash}"]
    if base.environment != head.environment and base.kernels_hash == head.kernels_hash:
        told.append(f"environment {base.environment} -> {head.environment}")
    if base.host != head.host:
        told.append(f"host {base.host} -> {head.host}")
    return bool(told), told


def _commits(options: NightlyOptions, base: RunRow, head: RunRow) -> list[str]:
    if not (base.commit and head.commit):
        return []
    try:
        lines = git(options.repo, "log", "--format=%h %s", f"{base.commit}..{head.commit}", "--", "kernels").decode()
    except AttnwatchError:
        return []
    return [f"commit {line}" for line in lines.splitlines()[:20]]


def _report(
    store: Store, head: RunRow, base: RunRow | None, measured: Measured, options: NightlyOptions,
    findings: list[Finding], judged: Judged, incidents: list[Incident], differences: list[str],
) -> NightReport:  # fmt: skip
    rows = measurements_of_run(store, head.id)
    failures = [(r.case.backend, r.case.label, f"{r.status}: {r.detail}") for r in rows if Status(r.status).failed]
    return NightReport(
        run_id=head.id, suite=head.suite, suite_given=options.suite, revision=_revision(head),
        machine=head.device_model, fingerprint=head.machine,
        started_at=head.started_at, duration_s=(head.finished_at or time.time()) - head.started_at,
        counts=counts_by_status(store, [head.id])[head.id], base_run=base.id if base else None,
        base_revision=_revision(base) if base else None, nights=judged.nights, incidents=incidents, findings=findings,
        faster=judged.faster, compared=judged.compared, smallest_detectable=judged.smallest_detectable,
        missing=[f"{c.backend} {c.workload.label}" for c in judged.missing], failures=failures,
        notes=[*measured.notes, *_left_out(head)],
        suspects_from=differences, bundle=str(measured.bundle), store=store.name,
    )  # fmt: skip


def _left_out(head: RunRow) -> list[str]:
    return [] if head.complete else [f"{head.planned - head.measured} cases were not measured"]


def _revision(r: RunRow) -> Revision:
    return Revision(r.revision, r.commit, r.dirty, r.committed_at, r.subject, r.kernels_hash)
