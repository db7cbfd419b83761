"""Suspects are measured again before anyone is told.

Base and head interleaved where the kernels or the variables of the last good run differ and can be had; then, where the
rest of the environment differs too, head alone against its level, as kernels without blame do not acquit torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.ab import ABCase, run_ab
from harness.detection.ab import ABOptions
from harness.model import Case, Measurement, MeasureOptions, Status, TriageState, VerdictKind
from harness.model.findings import Finding
from harness.worker import WorkerClient, WorkerSpec

_S = TriageState
Progress = Callable[[int, int, Case], None]

#: Chance that a night without any regression confirms one, over all suspects and looks. Pairs cost seconds, a false
#: alarm costs somebody's morning, so that this is stricter than a comparison that somebody asked for.
FALSE_ALARMS = 0.01

#: Nothing that is under test differs between the two runs, so nothing that is under test can have regressed.
MACHINE_MOVED = "moved although kernels and environment are the same"
NO_TIME = "the budget ended before it was measured again"


@dataclass(frozen=True)
class Lineup:
    """What one group of suspects can be settled with.

    ``base`` is None where the earlier kernels cannot be had, or they and the variables are the same. ``kernels_differ``
    and ``environment_differs`` say what changed since the last good run, beyond variables that ``base`` restores.
    """

    head: WorkerSpec
    base: WorkerSpec | None
    kernels_differ: bool
    environment_differs: bool
    options: MeasureOptions
    judge: ABOptions
    deadline: float | None = None


def confirm(findings: Sequence[Finding], lineup: Lineup, progress: Progress | None = None) -> list[Finding]:
    """The same findings, each confirmed, dismissed or (when time ran out) still suspect."""
    if lineup.base is None and not (lineup.kernels_differ or lineup.environment_differs):
        return [replace(f, state=_S.DISMISSED, how=MACHINE_MOVED) for f in findings if f.kind != "status"] + [
            _tried(f, lineup) for f in findings if f.kind == "status"
        ]
    timed = [f for f in findings if f.kind == "slower"]
    others = [f for f in findings if f.kind != "slower"]
    settled = _interleaved(timed, lineup, progress) if lineup.base is not None else _again(timed, lineup, progress)
    return _again(others, lineup, progress) + settled


def _interleaved(findings: Sequence[Finding], lineup: Lineup, progress: Progress | None) -> list[Finding]:
    if not findings:
        return []
    assert lineup.base is not None
    done, _ = run_ab(
        [f.case for f in findings], lineup.base, lineup.head, lineup.options, lineup.judge,
        deadline=lineup.deadline, progress=progress,
    )  # fmt: skip
    by_key = {d.case.key: d for d in done}
    settled = [_settled(f, by_key[f.case.key]) if f.case.key in by_key else replace(f, how=NO_TIME) for f in findings]
    if not lineup.environment_differs:
        return settled
    acquitted = [f for f in settled if f.state is _S.DISMISSED]
    return [f for f in settled if f.state is not _S.DISMISSED] + _again(acquitted, lineup, progress)


def _settled(f: Finding, d: ABCase) -> Finding:
    if d.result is None:
        if d.broke:
            return replace(
                f, kind="status", state=_S.CONFIRMED, how="fails on head, works on base",
                base_status=d.base_status.value, head_status=d.head_status.value,
            )  # fmt: skip
        return replace(f, how=f"could not be measured again: {d.detail}")
    r = d.result
    f = replace(
        f, ratio=r.ratio, low=_finite(r.low), high=_finite(r.high), p=r.p,
        smallest_detectable=_finite(r.smallest_detectable),
    )  # fmt: skip
    if r.verdict is VerdictKind.SLOWER:
        return replace(f, state=_S.CONFIRMED, how=f"base and head interleaved, {r.n_head} pairs")
    told = f"{r.verdict.value} when base and head are interleaved, {r.n_head} pairs"
    # Not shown and not ruled out either, by pairs too few or too noisy: the next night asks again.
    open_ = r.verdict is VerdictKind.AMBIGUOUS and r.ratio > 1 and r.smallest_detectable > (f.ratio or 1.0) - 1
    return replace(f, state=_S.SUSPECT if open_ else _S.DISMISSED, how=told)


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def _again(findings: Sequence[Finding], lineup: Lineup, progress: Progress | None) -> list[Finding]:
    """Head alone against the level that the history gave: counts in one worker, as they are the same in any, what is
    timed or broke in a fresh one for each case."""
    counted = [f for f in findings if f.kind == "more"]
    others = [f for f in findings if f.kind != "more"]
    return _measured(others, lineup, True, progress) + _measured(counted, lineup, False, progress)


def _measured(findings: Sequence[Finding], lineup: Lineup, isolate: bool, progress: Progress | None) -> list[Finding]:
    out: list[Finding] = []
    measured: dict[str, Measurement] = {}
    if not findings:
        return out
    with WorkerClient.connect(replace(lineup.head, isolate=isolate)) as client:
        for i, f in enumerate(findings):
            if lineup.deadline is not None and time.time() >= lineup.deadline:
                out.append(replace(f, state=_S.SUSPECT, how=NO_TIME))
                continue
            if progress is not None:
                progress(i, len(findings), f.case)
            # One measuring speaks for all metrics of its case.
            if f.case.key not in measured:
                measured[f.case.key] = client.measure(f.case, lineup.options)
            out.append(_repeated(f, measured[f.case.key], lineup.judge.relevant))
    return out


def _tried(f: Finding, lineup: Lineup) -> Finding:
    """A case that breaks although nothing changed is told all the same: it may have been luck until now."""
    return _again([f], lineup, None)[0]


def _repeated(f: Finding, measured: Measurement, relevant: float) -> Finding:
    if f.kind == "status":
        if measured.status.broken:
            return replace(
                f, state=_S.CONFIRMED, head_status=measured.status.value, how="fails again in a fresh worker"
            )
        if measured.status is Status.OK:
            return replace(f, state=_S.DISMISSED, how="works when measured again in a fresh worker")
        return replace(f, how=f"could not be measured again: {measured.status.value} {measured.detail}".strip())
    value = measured.metrics.get(f.metric)
    if measured.status is not Status.OK or value is None or f.level is None:
        return replace(f, how=f"could not be measured again: {measured.status.value} {measured.detail}".strip())
    if f.kind == "more":
        same = (value.value - f.level) * ((f.ratio or 2.0) - 1.0) <= 0
        state = _S.DISMISSED if same else _S.CONFIRMED
        return replace(f, state=state, how="exact, and back when measured again" if same else "exact, the same again")
    if value.low is None or value.high is None:
        return replace(f, how="too few samples when measured again")
    low, high = value.low / f.level, value.high / f.level
    f = replace(f, ratio=value.value / f.level, low=low, high=high, p=None)
    if low <= 1 + (f.smallest_detectable or 0.0) or (f.ratio or 0.0) < 1 + relevant:
        return replace(f, state=_S.DISMISSED, how="back at its level when measured again")
    return replace(f, state=_S.CONFIRMED, how="slower again in a fresh worker, on a changed environment")
