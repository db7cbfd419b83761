"""Explaining an incident of the store, and measuring the combinations that settle which explanation is true."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from db.engine import Store
from db.incidents import IncidentDetail
from db.queries import incident, measurements_of_run, run
from db.repository import set_trigger
from harness.ab import run_ab, slower
from harness.detection.ab import ABOptions
from harness.explain import explain
from harness.explain.active import confirm as settle
from harness.explain_csv import report as as_report
from harness.model import Case, InputError, MeasureOptions, Scalar, Status, Workload
from harness.model.checks import wrong_param
from harness.model.findings import STATUS
from harness.policy import NO_POLICY, Policy
from harness.static.bundle import refuse_compiled
from harness.worker import WorkerSpec

from .ends import earlier_kernels, spec_of, variables_differ

_SAMPLING_S = 0.3
_NOT_PARAMS = ("backend", "operation", "benchmark")

Row = Mapping[str, Any]


def table(store: Store, incident_id: str) -> tuple[list[dict[str, Scalar]], list[bool], IncidentDetail]:
    """Every case that could have regressed in the incident's run, as a row, and whether it did."""
    detail = incident(store, incident_id)
    if detail is None:
        raise InputError(f"no incident {incident_id!r} in {store.name}; `attnwatch detect` lists them")
    if not detail.regressions:
        raise InputError(f"incident {incident_id} holds no cases")
    lead = detail.regressions[0]
    metric = next((r.metric for r in detail.regressions if r.metric == "latency_s"), lead.metric)
    hit = {r.case.key for r in detail.regressions if r.metric == metric}
    rows: list[dict[str, Scalar]] = []
    labels: list[bool] = []
    for m in measurements_of_run(store, str(lead.head_run)):
        status = Status(m.status)
        comparable = m.case.key in hit or (status is Status.OK and (metric == STATUS or metric in m.metrics))
        if comparable:
            rows.append(dict(m.case.columns))
            labels.append(m.case.key in hit)
    return rows, labels, detail


def explain_incident(store: Store, incident_id: str) -> dict[str, Any]:
    """The report of ``explain --csv`` for an incident of the store."""
    rows, labels, detail = table(store, incident_id)
    return {"incident": incident_id, "title": detail.incident.title, **as_report(explain(rows, regressed=labels), rows)}


def confirm_incident(
    store: Store, incident_id: str, repo: Path, device: str, *, measurements: int, deadline: float | None,
    say: Callable[[str], None], policy: Policy = NO_POLICY,
) -> dict[str, Any]:  # fmt: skip
    """Measure untested combinations, base and head interleaved, until one explanation remains or the budget ends.

    Regressed is what passes the policy's smallest effect for the incident's worst case. A settled explanation becomes
    the incident's trigger in the store. InputError where the two revisions cannot be laid out, or nothing was to be
    explained.
    """
    rows, labels, detail = table(store, incident_id)
    refuse_compiled((r.case.benchmark for r in detail.regressions), incident_id)
    told = explain(rows, regressed=labels)
    if not told.triggers:
        raise InputError(
            f"incident {incident_id} has no trigger to confirm: nothing separates its cases from the others"
        )
    base, head = _ends(store, detail, repo, device)
    judge = ABOptions(relevant=policy.minimum_effect(detail.regressions[0].case.columns))
    log: list[dict[str, Any]] = []

    def measure(picked: Sequence[Row]) -> list[bool]:
        cases = [_case(r) for r in picked]
        done, left = run_ab(cases, base, head, MeasureOptions(max_seconds=_SAMPLING_S), judge, deadline=deadline)
        bad = {d.case.key for d in slower(done)}
        for d in done:
            ratio = d.result.ratio if d.result else None
            log.append({**d.case.columns, "ratio": ratio, "regressed": d.case.key in bad, "detail": d.detail or None})
            say(f"{'regressed' if d.case.key in bad else 'not':<10}{d.case.backend} {d.case.workload.label}")
        if left:
            raise TimeoutError
        return [c.key in bad for c in cases]

    try:
        remain, _ = settle(told, rows, measure, budget=measurements, allowed=_can_be)
    except TimeoutError:
        remain = []
    settled = bool(remain) and all(len(r) == 1 or r[0].belief - r[1].belief > 3 for r in remain if r)
    texts = [r[0].text for r in remain if r]
    if settled and texts:
        set_trigger(store, incident_id, " or ".join(texts), f"settled by {len(log)} measurements", at=time.time())
    return {
        "incident": incident_id,
        "before": [t.text for t in told.triggers],
        "triggers": [{"text": r[0].text, "alternatives": [c.text for c in r[1:9]]} for r in remain if r],
        "settled": settled,
        "measured": log,
    }


def _ends(store: Store, detail: IncidentDetail, repo: Path, device: str) -> tuple[WorkerSpec, WorkerSpec]:
    lead = detail.regressions[0]
    good = run(store, lead.base_run) if lead.base_run else None
    bad = run(store, lead.head_run) if lead.head_run else None
    if good is None or bad is None:
        raise InputError(f"incident {detail.incident.id} has no last good run to compare with")
    if good.kernels_hash == bad.kernels_hash and not variables_differ(store, good, bad):
        raise InputError(
            f"incident {detail.incident.id}: kernels and variables are the same at both ends; compare environments "
            "with `attnwatch compare --base-python --head-python`"
        )
    ends = []
    for r in (good, bad):
        root = earlier_kernels(repo, r)
        if root is None:
            raise InputError(f"incident {detail.incident.id}: the kernels of {r.revision} cannot be laid out any more")
        ends.append(spec_of(store, r, device, root))
    return ends[0], ends[1]


def _params(row: Row) -> dict[str, Scalar]:
    """The workload's own columns of a row."""
    return {k: v for k, v in row.items() if k not in _NOT_PARAMS}


def _case(row: Row) -> Case:
    return Case(str(row["benchmark"]), Workload(str(row["operation"]), _params(row)), str(row["backend"]))


def _can_be(row: Row) -> bool:
    """Whether a proposed combination can mean anything; lengths in lists do not follow a changed number."""
    params = _params(row)
    return wrong_param(params) is None and int(params.get("kv_len") or 1) > 0 and int(params.get("q_len") or 1) > 0
