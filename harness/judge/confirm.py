"""Suspects are measured again before anyone is told: base and head interleaved, or head alone where base is gone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.ab import ABCase, run_ab
from harness.detection.ab import ABOptions
from harness.model import Case, MeasureOptions, Status, TriageState, VerdictKind
from harness.model.findings import Finding
from harness.worker import WorkerClient, WorkerSpec

_S = TriageState

#: Nothing that is under test differs between the two runs, so nothing that is under test can have regressed.
MACHINE_MOVED = "slower twice, although kernels and environment are the same: the machine moved"


@dataclass(frozen=True)
class ConfirmPlan:
    """How suspects can be settled.

    ``base`` and ``head`` differ where the kernels do; ``base`` is None where the earlier kernels cannot be had or
    are the same. ``changed`` says that something else around them did (packages, driver, variables).
    """

    head: WorkerSpec
    base: WorkerSpec | None
    changed: bool
    options: MeasureOptions
    judge: ABOptions
    deadline: float | None = None


def confirm(
    findings: Sequence[Finding], plan: ConfirmPlan, progress: Callable[[int, int, Case], None] | None = None
) -> list[Finding]:
    """The same findings, each confirmed, dismissed or (when time ran out) still suspect."""
    exact = [_settle_exact(f, plan) for f in findings if f.kind != "slower"]
    timed = [f for f in findings if f.kind == "slower"]
    if plan.base is not None:
        return exact + _interleaved(timed, plan, progress)
    return exact + _again(timed, plan, progress)


def _settle_exact(f: Finding, plan: ConfirmPlan) -> Finding:
    """Exact metrics and statuses need no statistics; a status was already tried twice."""
    if f.kind == "status" or plan.base is not None or plan.changed:
        return replace(f, state=_S.CONFIRMED, how=f.how if f.kind == "status" else "exact metric")
    return replace(f, state=_S.DISMISSED, how="exact metric moved although kernels and environment are the same")


def _interleaved(
    findings: Sequence[Finding], plan: ConfirmPlan, progress: Callable[[int, int, Case], None] | None
) -> list[Finding]:
    if not findings:
        return []
    assert plan.base is not None
    done, left = run_ab(
        [f.case for f in findings], plan.base, plan.head, plan.options, plan.judge,
        deadline=plan.deadline, progress=progress,
    )  # fmt: skip
    by_key = {d.case.key: d for d in done}
    left_keys = {c.key for c in left}
    return [
        replace(f, how="the budget ended before it was measured again") if f.case.key in left_keys
        else _settled(f, by_key[f.case.key])
        for f in findings
    ]  # fmt: skip


def _settled(f: Finding, d: ABCase) -> Finding:
    if d.result is None:
        if d.broke:
            return replace(f, kind="status", state=_S.CONFIRMED, how="fails on head, works on base",
                           base_status=d.base_status.value, head_status=d.head_status.value)  # fmt: skip
        return replace(f, how=f"could not be measured again: {d.detail}")
    r = d.result
    f = replace(
        f, ratio=r.ratio, low=_finite(r.low), high=_finite(r.high), p=r.p,
        smallest_detectable=_finite(r.smallest_detectable),
    )  # fmt: skip
    if r.verdict is VerdictKind.SLOWER:
        return replace(f, state=_S.CONFIRMED, how=f"base and head interleaved, {r.n_head} pairs")
    return replace(f, state=_S.DISMISSED, how=f"{r.verdict.value} when interleaved, {r.n_head} pairs")


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def _again(
    findings: Sequence[Finding], plan: ConfirmPlan, progress: Callable[[int, int, Case], None] | None
) -> list[Finding]:
    """Head alone, against the level that the history gave: all that is left when base cannot be run."""
    out: list[Finding] = []
    if not findings:
        return out
    with WorkerClient.connect(plan.head) as client:
        for i, f in enumerate(findings):
            if plan.deadline is not None and time.time() >= plan.deadline:
                out.append(replace(f, how="the budget ended before it was measured again"))
                continue
            if progress is not None:
                progress(i, len(findings), f.case)
            out.append(_repeated(f, client, plan))
    return out


def _repeated(f: Finding, client: WorkerClient, plan: ConfirmPlan) -> Finding:
    measured = client.measure(f.case, plan.options)
    value = measured.metrics.get(f.metric)
    if measured.status is not Status.OK or value is None or value.low is None:
        return replace(f, how=f"could not be measured again: {measured.status.value} {measured.detail}".strip())
    if f.level is not None and value.low <= f.level * (1 + (f.smallest_detectable or 0.0)):
        return replace(f, state=_S.DISMISSED, how="back at its level when measured again")
    if not plan.changed:
        return replace(f, state=_S.DISMISSED, how=MACHINE_MOVED)
    return replace(f, state=_S.CONFIRMED, how="slower twice on a changed environment; base cannot be run here")
