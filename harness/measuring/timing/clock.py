"""The interface of clocks, the account of where a case's time went, and the sampling loop."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

from harness.model import Scalar, Value

from .adaptive import Sampling, StopRule, median_interval, median_of

Call = Callable[[], object]

#: Another process took a core away during the sample. Such samples count only where too few others can be had.
PREEMPTED = "preempted"


@dataclass(slots=True)
class Account:
    """Seconds of one case by purpose. What is none of these is the harness's own cost."""

    kernel_s: float = 0.0
    flush_s: float = 0.0
    inputs_s: float = 0.0
    oracle_s: float = 0.0

    @contextmanager
    def spend(self, name: str) -> Iterator[None]:
        """Adds the time of the block to the field ``name``."""
        start = perf_counter()
        try:
            yield
        finally:
            setattr(self, name, getattr(self, name) + perf_counter() - start)

    @property
    def total(self) -> float:
        """All that is not harness cost."""
        return self.kernel_s + self.flush_s + self.inputs_s + self.oracle_s


class Clock(Protocol):
    """Times single calls on one device."""

    @property
    def flush_bytes(self) -> int:
        """Bytes touched before each cold sample."""

    def sample(self, call: Call, account: Account, *, cold: bool) -> tuple[float, str]:
        """Seconds of one call, and why the sample must not count ("" when it counts)."""

    def once(self, call: Call, account: Account) -> tuple[object, float]:
        """Result and seconds of one call that need not be precise, host time included, device work done."""

    def take(self) -> object:
        """Result of the last sample, which is kept, outside the timed window, until the next one begins or it is
        taken; None where there is none."""

    def telemetry(self) -> dict[str, Scalar]:
        """Temperature, clock and the like, as far as they can be read."""


@dataclass
class Samples:
    """What sampling one metric gave. ``discarded`` counts by reason the samples that could not count.

    ``disturbed`` is the share of preempted samples among those tried; ``fell_back`` says that they were kept because
    the machine left too few others.
    """

    values: list[float] = field(default_factory=list)
    warmup: list[float] = field(default_factory=list)
    discarded: dict[str, int] = field(default_factory=dict)
    stop_reason: str = ""
    disturbed: float = 0.0
    fell_back: bool = False

    def value(self) -> Value:
        """Median with its 95 % interval (none below 6 samples) and the number of samples.

        Where only preempted samples were to be had, the interval reaches down to the fastest: the machine's part in
        the median is not known, and a narrow interval would deny it.
        """
        ordered = sorted(self.values)
        low, high = median_interval(ordered) or (None, None)
        if self.fell_back and low is not None:
            low = ordered[0]
        return Value(median_of(ordered), low, high, len(ordered))


@contextmanager
def no_collector() -> Iterator[None]:
    """Keeps the cyclic garbage collector out of the samples."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def collect(clock: Clock, call: Call, rule: StopRule, account: Account, *, cold: bool, warmups: int = 1) -> Samples:
    """Warms up the way it samples, then samples until ``rule`` is content. Keeps every sample.

    One warm-up is enough after a gate that has called the kernel before.
    A clock that discards everything ends by ``rule.max_samples`` attempts beyond those that counted, or by time.
    Preempted samples are kept aside; on a machine that leaves too few others within ``rule.max_seconds`` they are used
    all the same, in the order taken, and ``fell_back`` says so.
    """
    got = Samples()
    refused: Counter[str] = Counter()
    every: list[float] = []
    state = Sampling(rule)
    with no_collector():
        for _ in range(warmups):
            got.warmup.append(clock.sample(call, account, cold=cold)[0])
        start = perf_counter()
        while True:
            seconds, why = clock.sample(call, account, cold=cold)
            elapsed = perf_counter() - start
            if why in ("", PREEMPTED):
                every.append(seconds)
            if why:
                refused[why] += 1
                if elapsed >= rule.max_seconds and len(state.samples) < rule.min_samples <= len(every):
                    got.stop_reason = "time"
                    break
                if refused.total() >= rule.max_samples or elapsed >= rule.hard_seconds:
                    got.stop_reason = "time" if elapsed >= rule.hard_seconds else "count"
                    break
                continue
            state.add(seconds)
            if (reason := state.stop(elapsed)) is not None:
                got.stop_reason = reason
                break
    got.disturbed = refused[PREEMPTED] / len(every) if every else 0.0
    got.fell_back = len(state.samples) < rule.min_samples and len(every) > len(state.samples)
    if got.fell_back:
        del refused[PREEMPTED]
    got.values, got.discarded = every if got.fell_back else state.samples, dict(refused)
    return got
