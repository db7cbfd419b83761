"""Interleaved A/B of two workers: pairs of a sample of base and one of head until the question is settled.

Both sides hold the case prepared, and slow drift of the machine cancels. Who goes first in a pair is drawn: were it
fixed, the effect of going first would be measured, and were it to alternate, differences would not be independent
of those before them, which the test asks for. Used by ``compare`` and by the confirmation of suspects.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from .detection.ab import ABOptions, ABResult, compare
from .detection.sequential import Decision, SequentialOptions, decide
from .model import Case, MeasureOptions, Scalar, Status, VerdictKind
from .worker import CaseError, WorkerClient, WorkerSpec

#: Pairs before the first look, and between looks; the test stays valid however often it looks.
LEAST_PAIRS, LOOK_EVERY = 8, 4

#: An interval that comes so near to 1 is looked at once more in other processes: where code and data of a process come
#: to lie makes the same kernel some 2 % faster or slower for as long as that process lives.
DOUBT = 0.05

#: A case may take this many times the sampling time of one metric.
TIME_FACTOR = 8.0


@dataclass(frozen=True)
class ABCase:
    """One case on both sides. ``result`` is None where one side could not be measured; statuses say which.

    ``base_first_s`` and ``head_first_s`` are the first calls, compilation included, None where a worker had called
    the case before. ``sampled`` where both sides were ready for it.
    """

    case: Case
    base_status: Status
    head_status: Status
    result: ABResult | None = None
    detail: str = ""
    base: list[float] = field(default_factory=list)
    head: list[float] = field(default_factory=list)
    base_first_s: float | None = None
    head_first_s: float | None = None
    sampled: bool = False

    @property
    def broke(self) -> bool:
        """Worked on base, and the kernel fails on head."""
        return self.base_status is Status.OK and self.head_status.broken


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
    relevant: Callable[[Case], float] | None = None,
    family: int | None = None,
) -> tuple[list[ABCase], list[Case]]:
    """Measure ``cases`` on both sides. Returns what was measured and the cases that the deadline left out.

    ``relevant`` gives the smallest relative change worth telling case by case, in the place of ``judge.relevant``.
    ``family`` is how many cases are judged together where ``cases`` are only some of them.
    """
    done: list[ABCase] = []
    # One error rate over all cases and all looks: the sequential test shares it.
    rule = SequentialOptions(alpha=judge.fdr, relevant=judge.relevant, family=max(1, family or len(cases)))
    with WorkerClient.connect(base) as a, WorkerClient.connect(head) as b, contextlib.ExitStack() as held:
        fresh: list[WorkerClient] = []
        for i, case in enumerate(cases):
            if deadline is not None and time.time() >= deadline:
                return done, list(cases[i:])
            if progress is not None:
                progress(i, len(cases), case)
            own = rule if relevant is None else replace(rule, relevant=relevant(case))
            head_first = random.random() < 0.5
            found = _one(case, a, b, options, own, head_first)
            if found.result is not None and in_doubt(found.result):
                fresh = fresh or [held.enter_context(WorkerClient.connect(s, private=True)) for s in (head, base)]
                found = _agreed(found, _one(case, fresh[1], fresh[0], options, own, not head_first))
            done.append(found)
    return done, []


def in_doubt(result: ABResult) -> bool:
    """Slower or faster by so little that the processes themselves may differ by as much."""
    near = min(abs(result.low - 1), abs(result.high - 1))
    return result.verdict in (VerdictKind.SLOWER, VerdictKind.FASTER) and near < DOUBT


def _agreed(first: ABCase, second: ABCase) -> ABCase:
    """The first finding where other processes say the same, else *ambiguous* with an interval that covers both."""
    was, then = first.result, second.result
    if was is None or (then is not None and then.verdict is was.verdict):
        return first
    if then is None:
        result = replace(was, verdict=VerdictKind.AMBIGUOUS)
    else:
        low, high = min(was.low, then.low), max(was.high, then.high)
        result = replace(was, verdict=VerdictKind.AMBIGUOUS, low=low, high=high)
    return replace(first, result=result, detail=first.detail or "other processes did not show the same")


def _one(
    case: Case, a: WorkerClient, b: WorkerClient, options: MeasureOptions, rule: SequentialOptions, head_first: bool
) -> ABCase:
    """One case; over again where a side was lost while it was sampled, which may have been no fault of the case.

    ``head_first``: head is prepared first, where else base is.
    """
    found = _try(case, a, b, options, rule, head_first)
    lost = found.result is None and found.sampled and (found.base_status.failed or found.head_status.failed)
    return _try(case, a, b, options, rule, head_first) if lost else found


def _try(
    case: Case, a: WorkerClient, b: WorkerClient, options: MeasureOptions, rule: SequentialOptions, head_first: bool
) -> ABCase:
    base, head = _Side(a, case, options), _Side(b, case, options)
    order = (head, base) if head_first else (base, head)
    with contextlib.closing(base), contextlib.closing(head):
        result, ready = None, [side.prepare() for side in order]  # both are tried, so that each own status is known
        if all(ready):
            result = _sample(base, head, options, rule)
        detail = "; ".join(f"{n}: {s.detail}" for n, s in (("base", base), ("head", head)) if s.detail)
        return ABCase(
            case, base.status, head.status, result, detail, base.samples, head.samples, base.first_s, head.first_s,
            sampled=all(ready),
        )  # fmt: skip


class _Side:
    """One side of one case: what it answered, and its own status when it failed."""

    def __init__(self, client: WorkerClient, case: Case, options: MeasureOptions) -> None:
        self.client, self.case, self.options = client, case, options
        self.status, self.detail = Status.OK, ""
        self.samples: list[float] = []
        self.first_s: float | None = None
        self._handle: int | None = None

    def prepare(self) -> bool:
        """Gate the case and hold it ready; once more where it failed."""
        for _ in range(2):
            try:
                self._handle = self.client.prepare(self.case, self.options)
            except CaseError as err:
                self.status, self.detail = err.status, err.detail
                if not err.status.failed:
                    break
            else:
                self.status, self.detail = Status.OK, ""
                self.first_s = self.client.first_call_s(self._handle)
                return True
        return False

    def sample(self) -> bool:
        """One more sample; False where the side is lost."""
        assert self._handle is not None
        try:
            self.samples += self.client.sample(self._handle, 1)
        except CaseError as err:
            self.status, self.detail, self._handle = err.status, err.detail, None
            return False
        return True

    def close(self) -> None:
        """Free what the worker holds for it."""
        if self._handle is not None:
            self.client.release(self._handle)
            self._handle = None


def _sample(base: _Side, head: _Side, options: MeasureOptions, rule: SequentialOptions) -> ABResult | None:
    """Pairs until the question is settled or time is up; None where a side was lost."""
    started = time.monotonic()
    while True:
        first, second = (base, head) if random.random() < 0.5 else (head, base)
        if not (first.sample() and second.sample()):
            return None
        pairs = len(head.samples)
        late = time.monotonic() - started > TIME_FACTOR * options.max_seconds
        if pairs >= rule.futile or (pairs >= LEAST_PAIRS and (late or pairs % LOOK_EVERY == 0)):
            decided = decide(base.samples, head.samples, rule)
            if decided.verdict is not None or late:
                return _result(base.samples, head.samples, decided, rule)


def _result(base: list[float], head: list[float], d: Decision, rule: SequentialOptions) -> ABResult:
    known = compare(base, head, ABOptions(relevant=rule.relevant), paired=True)
    verdict = d.verdict or VerdictKind.AMBIGUOUS
    return ABResult(
        d.ratio, d.low, d.high, d.p, verdict, known.smallest_detectable, len(base), len(head), d.scale
    )  # fmt: skip


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
