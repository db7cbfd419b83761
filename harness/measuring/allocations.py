"""What memory is held for at the peak of a call: real allocator events, attributed to parts that sum to the peak.

A kernel names what it keeps by ``torch.profiler.record_function("memory.PART")`` around the allocation: what outlives
the range belongs to PART, what the range frees itself is workspace.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch._C._profiler import _EventType

#: Parts of a peak, in the order in which they are shown. Inputs are no part: the peak is above them.
PARTS = ("kv_cache", "activations", "gradients", "optimiser", "results", "workspace", "other")

_RANGE = "memory."


@dataclass(frozen=True, slots=True)
class Change:
    """One allocation (``size`` above 0) or release (below), in bytes. ``part`` and ``until_ns`` are those of the
    innermost named range around it, "" and 0 where there is none."""

    at_ns: int
    ptr: int
    size: int
    device: str
    part: str = ""
    until_ns: int = 0


def changes(profiler: Any, device: str) -> list[Change]:
    """Allocator events of one kind of device (``cpu`` or ``cuda``) in the order of time, of a finished profile that
    was taken with ``profile_memory``."""
    if profiler.kineto_results is None:
        return []
    found = [
        Change(e.start_time_ns, e.extra_fields.ptr or 0, e.extra_fields.alloc_size, device, part, until)
        for e, part, until in walk(profiler.kineto_results.experimental_event_tree())
        if e.tag == _EventType.Allocation and e.extra_fields.device.type == device
    ]
    return sorted(found, key=lambda c: c.at_ns)


def walk(roots: Iterable[Any]) -> Iterator[tuple[Any, str, int]]:
    """Every event below ``roots`` with the part and the end of the innermost named range around it."""
    todo: list[tuple[Any, str, int]] = [(e, "", 0) for e in roots]
    while todo:
        event, part, until = todo.pop()
        yield event, part, until
        if event.children:
            if event.name.startswith(_RANGE) and event.name[len(_RANGE) :] in PARTS:
                part, until = event.name[len(_RANGE) :], event.start_time_ns + event.duration_time_ns
            todo += [(child, part, until) for child in event.children]


def attribute(
    found: Sequence[Change], results: Collection[int], *, results_are: str = "results", peak: int | None = None
) -> tuple[int, dict[str, int]]:
    """(peak, part -> bytes held at the peak). The parts sum to the peak.

    ``results`` are the addresses of the storages that the call returned. ``peak`` replaces the peak of the events where
    the allocator knows better; what the events do not explain is ``other``, as is what was neither returned nor freed.
    """
    now = highest = at = 0
    for i, change in enumerate(found, 1):
        now += change.size
        if now > highest:
            highest, at = now, i
    live: dict[int, Change] = {}
    for change in found[:at]:
        if change.size > 0:
            live[change.ptr] = change
        else:
            live.pop(change.ptr, None)
    freed: dict[int, int] = {}
    for change in found[at:]:
        if change.size < 0:
            freed.setdefault(change.ptr, change.at_ns)
    parts = dict.fromkeys(PARTS, 0)
    for ptr, change in live.items():
        gone = freed.get(ptr)
        if change.part and (gone is None or gone > change.until_ns):
            part = change.part
        elif gone is not None:
            part = "workspace"
        else:
            part = results_are if ptr in results else "other"
        parts[part] += change.size
    total = highest if peak is None else peak
    parts["other"] += total - sum(parts.values())
    return total, parts
