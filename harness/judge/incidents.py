"""Findings that share a start become incidents; incidents go to the store, and recover by themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from db.engine import Store
from db.queries import RunRow, run
from db.queries import incidents as stored_incidents
from db.repository import IncidentRecord, RegressionRecord, triage, upsert_incident
from harness.explain.result import evidence
from harness.model import PRIMARY, TriageState, VerdictKind, content_key
from harness.model.findings import Finding, Incident
from harness.model.metrics import metric as metric_of

from .following import EVIDENCE, traces
from .suspects import OPEN, Judged
from .triggers import Triggered, triggered

_KINDS = {"slower": "slower", "status": "fails", "more": "uses more"}
_AUTHOR = "attnwatch"


def gather(findings: Sequence[Finding], judged: Judged) -> list[Incident]:
    """One incident per start and trigger; what could not be settled is one incident per start without a trigger.

    Dismissed findings and those that an open incident holds are left out. The dearest comes first.
    """
    groups: dict[tuple[str | None, bool], list[Finding]] = defaultdict(list)
    for f in findings:
        if f.state is not TriageState.DISMISSED and f.incident is None:
            groups[f.first_bad, f.state is TriageState.CONFIRMED].append(f)
    out = []
    for (_, sure), group in groups.items():
        parts = triggered(group, judged.tested) if sure else [Triggered(None, group, total=judged.compared)]
        out += [incident_of(part, sure) for part in parts]
    return sorted(out, key=lambda i: -i.lost_s)


def _lost_s(findings: Sequence[Finding]) -> float:
    """Seconds more for one pass over the workloads."""
    return sum(
        f.case.workload.weight * (f.ratio - 1) * f.level
        for f in findings
        if f.metric == PRIMARY and f.kind == "slower" and f.ratio is not None and f.level is not None
    )


def incident_of(part: Triggered, sure: bool) -> Incident:
    # The time that people lose comes first, then what no longer works, then what is merely more.
    rank = {"slower": 0, "status": 1, "more": 2}
    group = sorted(part.findings, key=lambda f: (rank[f.kind], -(f.ratio or 0)))
    lead = [f for f in group if f.metric == group[0].metric]
    ratios = sorted(f.ratio for f in lead if f.ratio is not None)
    lows = [f.low for f in lead if f.low is not None]
    highs = [f.high for f in lead if f.high is not None]
    return Incident(
        id=content_key("incident", lead[0].first_bad, sure, part.text, sorted((f.case.key, f.metric) for f in group))[
            :8
        ],
        title=_title(part, lead),
        trigger=part.text,
        findings=group,
        state=TriageState.NEW if sure else TriageState.SUSPECT,
        effect=ratios[len(ratios) // 2] if ratios else None,
        effect_low=min(lows) if lows else None,
        effect_high=max(highs) if highs else None,
        tested=part.total,
        alternatives=part.alternatives,
        evidence=_evidence(part),
        lost_s=_lost_s(group),
    )


def _title(part: Triggered, lead: list[Finding]) -> str:
    backends = sorted({f.case.backend for f in lead})
    names = ", ".join(backends[:3]) + (" ..." if len(backends) > 3 else "")
    what = _KINDS[lead[0].kind] + (f" ({lead[0].metric})" if lead[0].kind == "more" else "")
    if lead[0].kind == "more" and metric_of(lead[0].metric).better == "higher":
        what = f"has less ({lead[0].metric})"
    if (grown := next((f for f in part.findings if f.growth), None)) is not None:
        what += f", {grown.metric} grows as {grown.growth}"
    if part.cause:
        return f"compiled code changed with {part.cause}: {names} {what} in {len(lead)} of {part.total} cases"
    if part.text is None:
        return f"{names} {what} in {len(lead)} of {part.total} cases"
    return f"{names} {what} where {part.text}"


def _evidence(part: Triggered) -> str:
    if part.text is None:
        return ""
    return evidence(part.regressed_inside, part.inside, part.regressed_total, part.total)


def save(
    store: Store, incidents: Sequence[Incident], *, machine: str, head_run: str, what_changed: Sequence[str],
    policy: str = "",
) -> list[Incident]:  # fmt: skip
    """Write incidents with their regressions; returned with the state that the store holds and whether they are new."""
    saved = []
    for incident in incidents:
        bad = run(store, incident.findings[0].first_bad or head_run)
        good_id = incident.findings[0].last_good
        good = run(store, good_id) if good_id else None
        record = IncidentRecord(
            id=incident.id, title=incident.title, trigger_text=incident.trigger or "", machine=machine,
            state=incident.state, first_bad_revision=bad.revision if bad else None,
            last_good_revision=good.revision if good else None, effect=incident.effect,
            effect_low=incident.effect_low, effect_high=incident.effect_high, owner=incident.owner,
            evidence={
                "what_changed": list(what_changed), "growth": sorted({f.growth for f in incident.findings if f.growth}),
                "how": sorted({f.how for f in incident.findings}),
                "alternatives": incident.alternatives, "tested": incident.tested, "counts": incident.evidence,
                "shadow": incident.shadow, "severity": incident.severity, "lost_s": incident.lost_s,
                EVIDENCE: traces(store, incident.findings, head_run), "policy": policy,
            },
        )  # fmt: skip
        rows = [
            RegressionRecord(
                case_key=f.case.key, metric=f.metric, verdict=VerdictKind.SLOWER, state=f.state, base_run=f.last_good,
                head_run=head_run, ratio=f.ratio, ratio_low=f.low, ratio_high=f.high, p_value=f.p,
                smallest_detectable=f.smallest_detectable, base_status=f.base_status, head_status=f.head_status,
            )
            for f in incident.findings
        ]  # fmt: skip
        is_new = upsert_incident(store, record, rows)
        held = {i.id: i for i in stored_incidents(store, machine=machine)}[incident.id]
        saved.append(
            replace(
                incident, is_new=is_new, state=TriageState(held.state),
                base_commit=good.commit if good else None, head_commit=bad.commit if bad else None,
            )
        )  # fmt: skip
    return saved


def settle_old(store: Store, judged: Judged, findings: Sequence[Finding], head: RunRow) -> tuple[list[str], list[str]]:
    """What this run says of incidents that were open before it: (still open, recovered) ids.

    An incident has recovered when every series of it was measured and is back at its level. A suspect of an earlier
    night is dismissed once each of its series was settled now: what was confirmed has an incident of its own.
    """
    series = defaultdict(set)
    states: dict[str, TriageState] = {}
    for k in judged.known:
        if k.state in OPEN:
            series[k.incident_id].add((k.case_key, k.metric))
            states[k.incident_id] = TriageState(k.state)
    settled = {(f.case.key, f.metric) for f in findings if f.state is not TriageState.SUSPECT}
    still, recovered = [], []
    for incident_id, held in series.items():
        if states[incident_id] is TriageState.SUSPECT:
            if held <= settled | judged.at_level:
                triage(store, incident_id, TriageState.DISMISSED, f"settled by run {head.id}", _AUTHOR)
            continue
        if held <= judged.at_level:
            reason = f"every series is back at its level in run {head.id}"
            # Dated by the run, since the runs before it are no level to judge later ones by.
            triage(store, incident_id, TriageState.FIXED, reason, _AUTHOR, at=head.started_at)
            recovered.append(incident_id)
        elif any((f.case.key, f.metric) in held for f in findings):
            still.append(incident_id)
    return still, recovered
