"""Judging one stored run: screen, measure again, gather, save, and the report that says so."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from db.engine import Store
from db.imported import NIGHT, mark_judged
from db.queries import MeasurementRow, RunRow, counts_by_status, environment_of_run, measurements_of_run, run, runs
from harness.builds import git
from harness.catalogue.kv_memory import parted
from harness.detection.ab import ABOptions
from harness.model import PRIMARY, AttnwatchError, Revision, Status, TriageState
from harness.model.findings import Finding, Incident, Latency, NightReport
from harness.worker import WorkerSpec

from .confirm import FALSE_ALARMS, Lineup, Progress, confirm
from .ends import earlier_kernels, spec_of, variables_differ
from .incidents import gather, save, settle_old
from .listing import untold
from .plan import JudgePlan, Say, Show
from .suspects import OPEN, Judged, judge_run

#: Measuring suspects again may take as long as this where no budget is given, and this long at least where one is.
_CONFIRM_S, _CONFIRM_AT_LEAST_S = 180.0, 30.0
_SAMPLING_S = 0.5

#: A known series that keeps less of its effect (log scale) than this may be on its way back.
_KEPT = 0.75


def judge_night(store: Store, run_id: str, plan: JudgePlan, show: Show, say: Say) -> NightReport:
    """Judge a stored run and save its incidents."""
    head = run(store, run_id)
    assert head is not None
    judged = judge_run(store, head.machine, head.id, plan.policy)
    shadow = plan.policy.shadow.holds(judged.nights, head.started_at)
    findings = _held(judged)
    fresh = [f for f in findings if f.incident is None]
    if fresh:
        say(f"{len(fresh)} suspects are measured again")
        settle = plan.settle or confirm_all
        again = settle(store, fresh, head, plan, lambda i, n, case: show(i, n, f"again: {case.backend}"))
        findings = [f for f in findings if f.incident is not None] + again
    findings = _asked_back(store, findings, judged, head, plan, show)
    base = _compared_with(store, findings, head)
    differences = what_changed(store, plan.repo, base, head)
    found = [_addressed(i, plan, shadow) for i in gather(findings, judged)]
    incidents = save(
        store, found, machine=head.machine, head_run=head.id, what_changed=differences, policy=plan.policy.version
    )
    still, recovered = settle_old(store, judged, findings, head)
    report = _report(store, head, base, plan, findings, judged, incidents, differences)
    report.still_open, report.recovered = still, recovered
    mark_judged(store, [head.id], by=NIGHT)
    report.shadow = plan.policy.shadow.text(judged.nights) if shadow else ""
    report.from_shadow = [] if shadow else untold(store, head.machine)
    return report


def _addressed(incident: Incident, plan: JudgePlan, shadow: bool) -> Incident:
    """Whom the policy holds responsible for an incident, judged by its worst finding."""
    worst = incident.findings[0]
    held = plan.policy.settings(worst.case.columns, worst.metric)
    return replace(incident, shadow=shadow, owner=held.owner or "", severity=held.severity or "normal")


def _held(judged: Judged) -> list[Finding]:
    """Findings, each with the open incident that already tells of it, so that nobody is told twice."""
    open_now = {(k.case_key, k.metric): k.incident_id for k in judged.known if k.state in OPEN[1:]}
    return [
        replace(f, incident=known, state=TriageState.CONFIRMED, how=f"known as incident {known}")
        if (known := open_now.get((f.case.key, f.metric)))
        else f
        for f in judged.findings
    ]


def _asked_back(
    store: Store, findings: list[Finding], judged: Judged, head: RunRow, plan: JudgePlan, show: Show
) -> list[Finding]:
    """Known series that seem to be on their way back are measured again where what they are blamed on has changed.

    A single noisy night must neither keep an incident open nor close it.
    """
    known = {(k.case_key, k.metric): k for k in judged.known if k.state in OPEN[1:]}

    def may_be_back(f: Finding) -> bool:
        k = known.get((f.case.key, f.metric))
        if k is None or f.kind != "slower" or f.incident is None or not (f.ratio and k.ratio and k.bad_run):
            return False
        bad = run(store, k.bad_run)
        moved = bad is not None and (
            bad.kernels_hash != head.kernels_hash or bool(environment_changes(store, bad, head))
        )
        return moved and math.log(f.ratio) < _KEPT * math.log(k.ratio)

    asked = [f for f in findings if may_be_back(f)]
    if not asked:
        return findings
    out = [f for f in findings if not may_be_back(f)]
    for f in confirm_all(store, asked, head, plan, lambda i, n, case: show(i, n, f"back? {case.backend}")):
        if f.state is TriageState.DISMISSED:
            judged.at_level.add((f.case.key, f.metric))
        out.append(replace(f, how=f"known as incident {f.incident}; {f.how}"))
    return out


def confirm_all(
    store: Store, findings: list[Finding], head: RunRow, plan: JudgePlan, progress: Progress | None
) -> list[Finding]:
    """Measure suspects again, those with the same last good run together."""
    deadline = time.time() + (plan.policy.confirm_budget_s or _CONFIRM_S)
    if plan.deadline is not None:
        deadline = min(deadline, max(plan.deadline, time.time() + _CONFIRM_AT_LEAST_S))
    groups: dict[tuple[str | None, float], list[Finding]] = defaultdict(list)
    for f in findings:
        timed = f.metric if f.kind == "slower" else PRIMARY
        groups[f.last_good, plan.policy.minimum_effect(f.case.columns, timed)].append(f)
    out: list[Finding] = []
    for (last_good, least), group in groups.items():
        base = run(store, last_good) if last_good else None
        # One error rate over the night, whatever groups it falls into.
        judge = ABOptions(relevant=least, fdr=FALSE_ALARMS * len(group) / len(findings))
        out += confirm(group, _lineup(store, base, head, plan, deadline, judge), progress)
    return out


def _lineup(
    store: Store, base: RunRow | None, head: RunRow, plan: JudgePlan, deadline: float, judge: ABOptions
) -> Lineup:
    kernels_differ = base is None or base.kernels_hash != head.kernels_hash
    changes = [] if base is None else environment_changes(store, base, head)
    before = None if base is None else _before(store, base, head, plan, kernels_differ)
    restored = before is not None and all(c.startswith("variable ") for c in changes)
    return Lineup(
        head=spec_of(store, head, plan.device, plan.kernels_root), base=before, kernels_differ=kernels_differ,
        environment_differs=base is None or (bool(changes) and not restored),
        options=replace(plan.options, max_seconds=_SAMPLING_S), judge=judge, deadline=deadline,
    )  # fmt: skip


def _before(store: Store, base: RunRow, head: RunRow, plan: JudgePlan, kernels_differ: bool) -> WorkerSpec | None:
    """What ran at the last good run, None where its kernels cannot be had or neither they nor its variables differ."""
    if not kernels_differ and not variables_differ(store, base, head):
        return None
    root = earlier_kernels(plan.repo, base) if kernels_differ else plan.kernels_root
    return None if root is None else spec_of(store, base, plan.device, root)


def environment_changes(store: Store, base: RunRow, head: RunRow) -> list[str]:
    """What differs between the environments of two runs, kernels left out."""
    a, b = environment_of_run(store, base.id), environment_of_run(store, head.id)
    if a is None or b is None:
        return []
    old, new = a.without_kernels(), b.without_kernels()
    names = sorted(k for k in {*old, *new} if old.get(k) != new.get(k))
    return [f"{k}: {old.get(k) or 'absent'} -> {new.get(k) or 'absent'}" for k in names]


def what_changed(store: Store, repo: Path, base: RunRow | None, head: RunRow) -> list[str]:
    """What differs between the run compared with and this one, nearest to the kernels first."""
    if base is None:
        return []
    told: list[str] = []
    if base.kernels_hash != head.kernels_hash:
        told += _commits(repo, base, head) or [f"kernels {base.kernels_hash} -> {head.kernels_hash}"]
    told += environment_changes(store, base, head)
    if base.host != head.host:
        told.append(f"host: {base.host} -> {head.host}")
    return told


def _commits(repo: Path, base: RunRow, head: RunRow) -> list[str]:
    if not (base.commit and head.commit):
        return []
    try:
        lines = git(repo, "log", "--format=%h %s", f"{base.commit}..{head.commit}", "--", "kernels").decode()
    except AttnwatchError:
        return []
    return [f"commit {line}" for line in lines.splitlines()[:20]]


def _compared_with(store: Store, findings: list[Finding], head: RunRow) -> RunRow | None:
    """The newest last good run of what was confirmed, else the run before this one on the machine."""
    named = dict.fromkeys(f.last_good for f in findings if f.last_good and f.state is TriageState.CONFIRMED)
    found = [r for name in named if (r := run(store, name)) is not None]
    earlier = (r for r in runs(store, machine=head.machine, limit=50) if r.started_at < head.started_at)
    return max(found, key=lambda r: r.started_at, default=None) or next(earlier, None)


def _report(
    store: Store, head: RunRow, base: RunRow | None, plan: JudgePlan, findings: list[Finding], judged: Judged,
    incidents: list[Incident], differences: list[str],
) -> NightReport:  # fmt: skip
    rows = measurements_of_run(store, head.id)
    failures = [(r.case.backend, r.case.label, f"{r.status}: {r.detail}") for r in rows if Status(r.status).failed]
    return NightReport(
        run_id=head.id, suite=head.suite, suite_given=plan.suite_given, revision=_revision(head),
        machine=head.device_model, fingerprint=head.machine, started_at=head.started_at,
        duration_s=(head.finished_at or time.time()) - head.started_at,
        counts=counts_by_status(store, [head.id])[head.id], base_run=base.id if base else None,
        base_revision=_revision(base) if base else None, nights=judged.nights, incidents=incidents, findings=findings,
        faster=judged.faster, compared=judged.compared, smallest_detectable=judged.smallest_detectable,
        missing=[label for a in judged.coverage if a.state == "new" for label in a.cases], failures=failures,
        coverage=judged.coverage, noisier=judged.noisier, latencies=_latencies(rows),
        notes=[*plan.notes, *_machine(judged), *_kv_memory(rows)], what_changed=differences, bundle=plan.bundle,
        store=store.name,
    )  # fmt: skip


def _latencies(rows: list[MeasurementRow]) -> list[Latency]:
    found = ((r.case, r.metrics.get(PRIMARY)) for r in rows if r.status == Status.OK)
    return [Latency(f"{c.operation} {c.label}", c.backend, v.value, v.low, v.high) for c, v in found if v is not None]


def _kv_memory(rows: list[MeasurementRow]) -> list[str]:
    return parted(
        (f"{r.case.backend} {r.case.label}", r.case.params, {n: v.value for n, v in r.metrics.items()}) for r in rows
    )


def _machine(judged: Judged) -> list[str]:
    if not judged.drift:
        return []
    return [f"the control kernels ran {judged.drift:+.0%} against their usual time; that was taken out of the figures"]


def _revision(r: RunRow) -> Revision:
    return Revision(r.revision, r.commit, r.dirty, r.committed_at, r.subject, r.kernels_hash)
