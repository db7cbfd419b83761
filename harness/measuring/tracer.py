"""What a call does to memory: allocations, releases, copies, and the tensors that kernels are entered with.

Off by default: where ``ATTNWATCH_TRACE_MEM`` is not 1, :func:`traced` gives back the very function that it was given.
On, the allocator reports to the profiler's C++ side, without any operators, and that is emptied into a ring of bounded
length every few calls, so that neither the ring nor what waits for it grows with the length of the program.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from types import TracebackType
from typing import Any, cast

import torch
from torch._C._profiler import (
    ProfilerActivity,
    ProfilerConfig,
    ProfilerState,
    RecordScope,
    _EventType,
    _ExperimentalConfig,
)

from harness.model.trace import Event
from harness.variables import TRACE_MEMORY

from .quiet import quiet_stderr

#: Events kept; older ones are counted and dropped.
CAPACITY = 65_536

#: Entries after which the profiler is emptied.
_SITTING = 256

#: Time, address and size (below 0 for a release) of an allocator event, or an event that was noted.
_Raw = tuple[int, int, int, Event | None]

_TENSOR_NAMES = ("q", "k", "v", "o")
_ACTIVITIES = {ProfilerActivity.CPU}
_AUTOGRAD: Any = torch.autograd

#: What a program copies tensors with: from the first argument to the result, ``copy_`` the other way round.
_COPYING: tuple[tuple[Any, str], ...] = (
    *((torch.Tensor, name) for name in ("to", "cpu", "cuda", "clone", "contiguous", "copy_")),
    (torch, "clone"),
)


def enabled(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the tracer is switched on."""
    return environment.get(TRACE_MEMORY) == "1"


class MemoryTracer:
    """Records what happens inside its ``with`` block: allocator events of every device, copies that the program asks
    for, and the entries that :meth:`enter` notes.

    For the time of the block the few functions that copy are wrapped; a mode that sees every function of torch would
    cost each of them microseconds.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity} and must be at least 1")
        self._ring: deque[_Raw] = deque(maxlen=capacity)
        self._noted: list[Event] = []
        self._kept: list[tuple[Any, str, Any]] = []
        self._running = False
        self._calls = 0
        #: Events that were pushed out of the ring.
        self.dropped = 0

    def __enter__(self) -> MemoryTracer:
        self._start()
        for owner, name in _COPYING:
            self._kept.append((owner, name, vars(owner).get(name)))
            setattr(owner, name, self._watched(getattr(owner, name), backwards=name == "copy_"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._kept:
            owner, name, before = self._kept.pop()
            if before is None:  # it was inherited
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._drain()

    def _watched(self, function: Callable[..., Any], backwards: bool) -> Callable[..., Any]:
        def copying(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            self._noted += _copied(args[1], args[0]) if backwards and len(args) > 1 else _copied(args[0], result)
            return result

        return copying

    @property
    def events(self) -> list[Event]:
        """The events kept, in the order of time; complete once the block has ended."""
        return [
            told or Event(at, "ALLOC" if size > 0 else "FREE", ptr, abs(size)) for at, ptr, size, told in self._ring
        ]

    def enter(self, kernel: str, arguments: Sequence[Any], result: Any = None) -> None:
        """Note the tensors that ``kernel`` was called with (named q, k, v in order) and what it gave (o)."""
        now = time.time_ns()
        self._noted += [
            Event(now, "ENTRY", t.data_ptr(), t.numel() * t.element_size(), _stream(t), name=f"{kernel}.{name}")
            for name, t in [*zip(_TENSOR_NAMES, arguments[:3], strict=False), ("o", result)]
            if isinstance(t, torch.Tensor)
        ]
        self._calls += 1
        if self._calls % _SITTING == 0:
            self._drain()
            self._start()

    def _start(self) -> None:
        config = ProfilerConfig(ProfilerState.KINETO, False, True, False, False, False, _ExperimentalConfig())
        with quiet_stderr():
            _AUTOGRAD._prepare_profiler(config, _ACTIVITIES)
            # A scope that nothing here is in: allocations are reported all the same, operators are not.
            _AUTOGRAD._enable_profiler(config, _ACTIVITIES, {RecordScope.STATIC_RUNTIME_MODEL})
        self._running = True

    def _drain(self) -> None:
        if not self._running:
            return
        self._running = False
        with quiet_stderr():
            tree = _AUTOGRAD._disable_profiler().experimental_event_tree()
        # Without operators every event is a root. Records are made of them when somebody reads.
        found: list[_Raw] = [
            (e.start_time_ns, x.ptr or 0, x.alloc_size, None)
            for e in tree
            if e.tag == _EventType.Allocation
            for x in [cast(Any, e.extra_fields)]
        ]
        found += [(e.at_ns, 0, 0, e) for e in self._noted]
        found.sort(key=itemgetter(0))
        self._noted.clear()
        self.dropped += max(0, len(self._ring) + len(found) - (self._ring.maxlen or 0))
        self._ring.extend(found)


def traced(function: Callable[..., Any], tracer: MemoryTracer | None, name: str = "") -> Callable[..., Any]:
    """``function`` with its entries noted; without a tracer the function itself, at no cost whatever."""
    if tracer is None:
        return function
    kernel = name or getattr(function, "__name__", "kernel")

    def call(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        tracer.enter(kernel, arguments, result)
        return result

    return call


def trace_call(call: Callable[[], Any], kernel: str, arguments: Sequence[Any]) -> tuple[list[Event], int]:
    """(events, dropped) of one call that was given ``arguments``."""
    with MemoryTracer() as tracer:
        result = call()
        tracer.enter(kernel, arguments, result)
    return tracer.events, tracer.dropped


def _copied(source: Any, target: Any) -> list[Event]:
    """The copy from one tensor to another; none where they are one, or no tensors."""
    if not (isinstance(source, torch.Tensor) and isinstance(target, torch.Tensor)):
        return []
    kind = copy_kind(source.device.type, target.device.type)
    if target.data_ptr() == source.data_ptr():
        return []
    size = target.numel() * target.element_size()
    return [Event(time.time_ns(), kind, target.data_ptr(), size, _stream(target), source.data_ptr())]


def copy_kind(source: str, target: str) -> str:
    """COPY_H2D, COPY_D2H, or COPY between devices of one kind, by types of devices."""
    return {(True, False): "COPY_H2D", (False, True): "COPY_D2H"}.get((source == "cpu", target == "cpu"), "COPY")


def _stream(tensor: torch.Tensor) -> int:
    return int(torch.cuda.current_stream(tensor.device).cuda_stream) if tensor.is_cuda else 0
