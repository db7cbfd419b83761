"""Interleaved A/B of two workers: one sample of base, one of head, in turn, until the question is settled.

Both sides hold the case prepared, and the order within a pair alternates, so that slow drift of the machine and
the effect of going first cancel. Used by ``compare`` and by the confirmation of suspects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from .detection.ab import ABOptions, ABResult, compare, family
from .model import Case, MeasureOptions, Scalar, Status, VerdictKind
from .worker import CaseError, WorkerClient, WorkerSpec

#: Pairs after which the evidence is looked at. The error rate of each look is the total over their number.
LOOKS = (12, 24, 48, 96)


@dataclass(frozen=True)
class ABCase:
    """One case on both sides. ``result`` is None where one side could not be measured; statuses say which."""

    case: Case
    base_status: Status
    head_status: Status
    result: ABResult | None = None
    detail: str = ""
    base: list[float] = field(default_factory=list)
    head: list[float] = field(default_factory=list)

    @property
    def broke(self) -> bool:
        """Worked on base, fails on head."""
        return self.base_status is Status.OK and self.head_status.failed


Progress = Callable[[int, int, Case], None]


def run_ab(
    cases: Sequence[Case],
    base: WorkerSpec,
    head: WorkerSpec,
    options: MeasureOptions,
    judge: ABOptions,
    *,
    deadline: float | None = None,
    progress: Progress | None = None,
) -> tuple[list[ABCase], list[Case]]:
    """Measure ``cases`` on both sides. Returns what was measured and the cases that the deadline left out."""
    done: list[ABCase] = []
    with WorkerClient.connect(base) as a, WorkerClient.connect(head) as b:
        for i, case in enumerate(cases):
            if deadline is not None and time.time() >= deadline:
                return _adjusted(done, judge), list(cases[i:])
            if progress is not None:
                progress(i, len(cases), case)
            done.append(_one(case, a, b, options, judge))
    return _adjusted(done, judge), []


def _one(case: Case, a: WorkerClient, b: WorkerClient, options: MeasureOptions, judge: ABOptions) -> ABCase:
    gates = [_gate(client, case, options) for client in (a, b)]
    (base_status, base_detail), (head_status, head_detail) = gates
    detail = "; ".join(f"{side}: {d}" for side, d in (("base", base_detail), ("head", head_detail)) if d)
    if base_status is not Status.OK or head_status is not Status.OK:
        return ABCase(case, base_status, head_status, detail=detail)
    try:
        ha, hb = a.prepare(case, options), b.prepare(case, options)
    except CaseError as err:
        return ABCase(case, err.status, err.status, detail=err.detail)
    base: list[float] = []
    head: list[float] = []
    try:
        result = _sample(a, ha, b, hb, base, head, options, judge)
    except CaseError as err:
        return ABCase(case, Status.OK, err.status, detail=err.detail)
    finally:
        a.release(ha)
        b.release(hb)
    return ABCase(case, Status.OK, Status.OK, result, "", base, head)


def _gate(client: WorkerClient, case: Case, options: MeasureOptions) -> tuple[Status, str]:
    """Whether the case may be timed at all on this side: one gated measuring, as short as possible."""
    from dataclasses import replace

    quick = replace(options, max_samples=options.min_samples, max_seconds=0.05, hot=False, memory=False)
    measured = client.measure(case, quick)
    return measured.status, measured.detail


def _sample(
    a: WorkerClient, ha: int, b: WorkerClient, hb: int, base: list[float], head: list[float],
    options: MeasureOptions, judge: ABOptions,
) -> ABResult:  # fmt: skip
    from dataclasses import replace

    strict = replace(judge, fdr=judge.fdr / len(LOOKS))
    started = time.monotonic()
    result = None
    for look in LOOKS:
        while len(base) < look:
            if len(base) % 2:
                head += b.sample(hb, 1)
                base += a.sample(ha, 1)
            else:
                base += a.sample(ha, 1)
                head += b.sample(hb, 1)
        result = compare(base, head, strict, paired=True)
        if result.verdict is not VerdictKind.AMBIGUOUS or time.monotonic() - started > 4 * options.max_seconds:
            break
    assert result is not None
    return result


def _adjusted(done: list[ABCase], judge: ABOptions) -> list[ABCase]:
    """Verdicts under one false discovery rate over all cases that gave a result."""
    from dataclasses import replace

    measured = [i for i, d in enumerate(done) if d.result is not None]
    results = family([r for d in done if (r := d.result) is not None], judge)
    out = list(done)
    for i, result in zip(measured, results, strict=True):
        out[i] = replace(out[i], result=result)
    return out


def slower(done: Iterable[ABCase]) -> list[ABCase]:
    """Cases that are slower on head, or broke there."""
    return [d for d in done if d.broke or (d.result is not None and d.result.verdict is VerdictKind.SLOWER)]


def row(item: ABCase) -> dict[str, Scalar]:
    """One case as a flat row: its columns, then the figures."""
    r = item.result
    return {
        **item.case.columns,
        "base_status": item.base_status.value,
        "head_status": item.head_status.value,
        "verdict": r.verdict.value if r else None,
        "ratio": r.ratio if r else None,
        "ratio_low": r.low if r else None,
        "ratio_high": r.high if r else None,
        "p": r.p if r else None,
        "smallest_detectable": r.smallest_detectable if r else None,
        "detail": item.detail or None,
    }
