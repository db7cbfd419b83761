"""What an interleaved A/B over many cases says: verdicts, triggers, and whether the head may be taken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from .ab import ABCase, row, slower
from .explain import Explanation, explain
from .explain_csv import report as as_report
from .model import Status, VerdictKind


def ab_report(done: Sequence[ABCase]) -> dict[str, Any]:
    """``cases`` with the dearest loss first, ``triggers`` and ``unexplained`` as ``explain`` gives them, ``gate``."""
    ranked = sorted(done, key=lambda d: -lost_s(d))
    told = triggers(done)
    return {"cases": [{**row(d), "lost_s": lost_s(d)} for d in ranked], **told, "gate": gate(done)}


def lost_s(item: ABCase) -> float:
    """Seconds more on head for each pass over the workloads, by the weight of the case; 0 unless slower for sure."""
    if item.result is None or item.result.verdict is not VerdictKind.SLOWER:
        return 0.0
    return item.case.workload.weight * (median(item.head) - median(item.base))


def gone(done: Sequence[ABCase]) -> list[ABCase]:
    """Cases that ran on base and that head does not offer any more."""
    return [d for d in done if d.base_status is Status.OK and d.head_status.absent]


def gate(done: Sequence[ABCase]) -> dict[str, Any]:
    """Go or no-go for head.

    ``weighted_ratio`` is the time of one pass over the workloads, by weight, head over base; ``lost_s`` the seconds
    that the slower cases add to it. ``first_call_s`` holds (base, head) seconds of first calls, compilation included,
    over the cases that both sides called for the first time; None where there is none.
    """
    timed = [d for d in done if d.result is not None]
    base = sum(d.case.workload.weight * median(d.base) for d in timed)
    head = sum(d.case.workload.weight * median(d.head) for d in timed)
    first = [(d.base_first_s, d.head_first_s) for d in done if d.base_first_s and d.head_first_s]
    bad, lost = slower(done), gone(done)
    broke = [d for d in bad if d.broke]
    reasons = [
        f"{n} of {len(done)} cases {what}"
        for n, what in (
            (len(bad) - len(broke), "are slower"),
            (len(broke), "fail on head and work on base"),
            (len(lost), "are not offered by head any more"),
        )
        if n
    ]
    return {
        "go": not reasons,
        "reasons": reasons,
        "weighted_ratio": head / base if base else None,
        "lost_s": sum(lost_s(d) for d in done),
        "first_call_s": [sum(b or 0.0 for b, _ in first), sum(h or 0.0 for _, h in first)] if first else None,
    }


def triggers(done: Sequence[ABCase]) -> dict[str, Any]:
    """The predicates that cover what broke, and what is slower; nothing where no case is.

    Ambiguous cases that might be as slow as the slower ones are left out of the evidence.
    """
    ran = [d for d in done if d.base_status is Status.OK and d.head_status is not Status.UNSUPPORTED]
    timed = {d.case.key: d.result for d in ran if d.result is not None}
    broken = {d.case.key for d in ran if d.broke}
    slow = {key for key, r in timed.items() if r.verdict is VerdictKind.SLOWER}
    parts = [_part(ran, broken)] if broken else []
    if slow:
        usual = median(timed[key].ratio for key in slow)
        open_ = {k for k, r in timed.items() if r.verdict is VerdictKind.AMBIGUOUS and not r.high < usual}
        parts.append(_part([d for d in ran if d.case.key in timed.keys() - open_], slow))
    return {name: [x for p in parts for x in p[name]] for name in ("triggers", "unexplained")}


def _part(cases: Sequence[ABCase], bad: set[str]) -> dict[str, Any]:
    """Triggers of the bad cases as plain values, with their pooled ratio where it is known, and what none covers."""
    rows = [dict(d.case.columns) for d in cases]
    told = explain(rows, regressed=[d.case.key in bad for d in cases]) if len(rows) > 1 else Explanation()
    spoken = as_report(told, rows)
    for trigger, plain in zip(told.triggers, spoken["triggers"], strict=True):
        plain["effect"], plain["effect_ci"] = _effect([cases[i] for i in trigger.rows])
    if len(rows) == 1:
        spoken["unexplained"] = rows
    return spoken


def _effect(inside: Sequence[ABCase]) -> tuple[float | None, list[float] | None]:
    """Geometric mean of the ratios, each weighted by how well it is known, with its 95 % interval."""
    known = [d.result for d in inside if d.result and d.result.low > 0 and math.isfinite(d.result.high)]
    if not known:
        return None, None
    logs = [math.log(r.ratio) for r in known]
    weights = [1 / max(math.log(r.high / r.low) / 3.92, 1e-4) ** 2 for r in known]
    mean = sum(w * x for w, x in zip(weights, logs, strict=True)) / sum(weights)
    # Where effects differ between cases by more than their noise, the interval is that of their spread.
    spread = sum(w * (x - mean) ** 2 for w, x in zip(weights, logs, strict=True)) / max(1, len(logs) - 1)
    half = 1.96 * math.sqrt(max(1.0, spread) / sum(weights))
    return math.exp(mean), [math.exp(mean - half), math.exp(mean + half)]
