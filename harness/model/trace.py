"""Events of the memory tracer, and the text in which a measurement keeps them. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from .terms import InputError

#: Kinds of events. ``COPY`` stays on one kind of device.
KINDS = ("ALLOC", "FREE", "COPY", "COPY_H2D", "COPY_D2H", "ENTRY")

#: The telemetry field that holds a trace, and its longest text: beyond it the oldest events are dropped.
TELEMETRY = "memory_trace"
TEXT_CHARS = 60_000


@dataclass(frozen=True, slots=True)
class Event:
    """``ptr`` is the block, the target of a copy or the tensor that a kernel was entered with; ``src`` the source of a
    copy; ``size`` in bytes; ``name`` the kernel and its argument ("attention.q") at an entry. ``at_ns`` since 1970."""

    at_ns: int
    kind: str
    ptr: int
    size: int
    stream: int = 0
    src: int = 0
    name: str = ""


def encode(events: Sequence[Event], dropped: int = 0, limit: int = TEXT_CHARS) -> str:
    """Compact JSON of the newest events that fit into ``limit`` characters; the others count as dropped."""
    start = events[0].at_ns if events else 0
    rows = [
        json.dumps(
            [e.at_ns - start, KINDS.index(e.kind), e.ptr, e.size, e.stream, e.src, e.name], separators=(",", ":")
        )
        for e in events
    ]
    room = limit - 100
    first = len(rows)
    while first and room >= len(rows[first - 1]) + 1:
        first -= 1
        room -= len(rows[first]) + 1
    head = f'{{"version":1,"dropped":{dropped + first},"start_ns":{start},"events":['
    return head + ",".join(rows[first:]) + "]}"


def decode(text: str) -> tuple[list[Event], int]:
    """(events, dropped). :class:`InputError` for a text that :func:`encode` did not make."""
    try:
        found = json.loads(text)
        if found["version"] != 1:
            raise InputError(f"a memory trace of version {found['version']!r}; 1 can be read")
        start = int(found["start_ns"])
        events = [
            Event(start + at, KINDS[kind], ptr, size, stream, src, name)
            for at, kind, ptr, size, stream, src, name in found["events"]
        ]
        return events, int(found["dropped"])
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise InputError(f"no memory trace: {type(error).__name__}: {error}") from None
