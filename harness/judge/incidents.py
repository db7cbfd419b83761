"""Findings that share a start become incidents, and incidents go to the store."""

from __future__ import annotations

from collections.abc import Sequence

from db.engine import Store
from db.repository import IncidentRecord, RegressionRecord, upsert_incident
from harness.model import TriageState, VerdictKind, content_key
from harness.model.findings import Finding, Incident

_KINDS = {
    "slower": "slower",
    "status": "fails",
    "more": "uses more",
}


def gather(findings: Sequence[Finding], first_bad: str, tested: int) -> list[Incident]:
    """One incident per kind and metric; confirmed ones are NEW, the others SUSPECT. Dismissed findings are left out."""
    groups: dict[tuple[str, str, bool], list[Finding]] = {}
    for f in findings:
        if f.state is not TriageState.DISMISSED:
            groups.setdefault((f.kind, f.metric, f.state is TriageState.CONFIRMED), []).append(f)
    return [_incident(kind, metric, sure, group, first_bad, tested) for (kind, metric, sure), group in groups.items()]


def _incident(kind: str, metric: str, sure: bool, group: list[Finding], first_bad: str, tested: int) -> Incident:
    ratios = sorted(f.ratio for f in group if f.ratio is not None)
    lows = [f.low for f in group if f.low is not None]
    highs = [f.high for f in group if f.high is not None]
    backends = sorted({f.case.backend for f in group})
    many = f"{len(group)} of {tested} cases" if tested else f"{len(group)} cases"
    title = f"{', '.join(backends[:3])}{' ...' if len(backends) > 3 else ''} {_KINDS[kind]}: {metric}, {many}"
    return Incident(
        id=content_key("incident", kind, metric, first_bad, sorted(f.case.key for f in group))[:8],
        title=title,
        trigger=None,
        findings=sorted(group, key=lambda f: -(f.ratio or 0)),
        state=TriageState.NEW if sure else TriageState.SUSPECT,
        effect=ratios[len(ratios) // 2] if ratios else None,
        effect_low=min(lows) if lows else None,
        effect_high=max(highs) if highs else None,
        tested=tested,
    )


def save(
    store: Store, incidents: Sequence[Incident], *, machine: str, base_run: str | None, head_run: str,
    first_bad: str, last_good: str | None, suspects_from: Sequence[str],
) -> None:  # fmt: skip
    """Write incidents with their regressions; those of the run that were stored before keep state and owner."""
    for incident in incidents:
        record = IncidentRecord(
            id=incident.id, title=incident.title, trigger_text=incident.trigger or "", machine=machine,
            state=incident.state, first_bad_revision=first_bad, last_good_revision=last_good, effect=incident.effect,
            effect_low=incident.effect_low, effect_high=incident.effect_high,
            evidence={"what_changed": list(suspects_from), "how": sorted({f.how for f in incident.findings})},
        )  # fmt: skip
        rows = [
            RegressionRecord(
                case_key=f.case.key, metric="latency_s" if f.metric == "status" else f.metric,
                verdict=VerdictKind.SLOWER, state=f.state, base_run=base_run, head_run=head_run, ratio=f.ratio,
                ratio_low=f.low, ratio_high=f.high, p_value=f.p, smallest_detectable=f.smallest_detectable,
            )
            for f in incident.findings
        ]  # fmt: skip
        upsert_incident(store, record, rows)
