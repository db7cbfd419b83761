"""Interleaved A/B over a fleet: each pair on one device, since devices differ by more than revisions do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from harness.ab import ABCase
from harness.detection.ab import ABOptions
from harness.model import Case, MeasureOptions, Status
from harness.rotation import Costs

from .crew import Device, Say, Work, carry_out, seconds_left
from .host import Sides

Progress = Callable[[int, int, Case], None]


def alike(devices: Sequence[Device], say: Say) -> list[Device]:
    """The largest set of devices of one machine and software; a comparison is about one kind of device."""
    kinds = Counter(d.about.environment.hash for d in devices)
    chosen = max(kinds, key=lambda k: (kinds[k], k))
    if others := [d.name for d in devices if d.about.environment.hash != chosen]:
        say(f"of another kind, and left out: {', '.join(others)}")
    return [d for d in devices if d.about.environment.hash == chosen]


def run_pairs(
    devices: list[Device], cases: Sequence[Case], deadline: float | None = None, *, sides: Sides,
    options: MeasureOptions, judge: ABOptions, relevant: Callable[[Case], float] | None = None,
    costs: Costs | None = None, say: Say = lambda text: None, progress: Progress | None = None,
) -> tuple[list[ABCase], list[Case]]:  # fmt: skip
    """As :func:`harness.ab.run_ab`, over like ``devices``; in the order of ``cases`` whoever measured them."""
    done: dict[str, ABCase] = {}
    left: dict[str, Case] = {}
    own = {} if relevant is None else {c.key: relevant(c) for c in cases}

    def ask(device: Device, mine: Sequence[Case]) -> Any:
        method = device.actor.pairs.options(num_returns="streaming")
        return method.remote(list(mine), sides, options, judge, len(cases), own, seconds_left(deadline))

    def take(_device: Device, what: str, record: Any) -> Case:
        case: Case = record.case if what == "pair" else record
        if what == "pair":
            done[case.key] = record
        else:
            left[case.key] = case
        if progress is not None:
            progress(len(done) + len(left), len(cases), case)
        return case

    def lost(case: Case) -> None:
        why = "its host was lost each time while it ran; nobody knows which side it was"
        done[case.key] = ABCase(case, Status.CRASHED, Status.CRASHED, detail=why)

    carry_out([Work(list(devices), cases, costs or Costs(), ask, take, lost)], say)
    return [done[c.key] for c in cases if c.key in done], [c for c in cases if c.key in left]
