"""What one call allocates and which operators or kernels it dispatches. One run, outside all timing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]

#: Engine bookkeeping of the backward pass; what the nodes call is listed by itself.
_NOT_OPERATORS = ("autograd::engine::",)


@dataclass(frozen=True)
class Footprint:
    """``peak`` is above what was allocated before the call; ``output`` counts the storages of the results that
    are no storages of the inputs; ``workspace`` is the rest of the peak. All in bytes.

    ``operators``: on a CPU every operator that passed the dispatcher, composite ones and the ``aten``
    operators that they call alike (names with ``::``), each once, in order of first dispatch. On CUDA the
    kernels that ran, likewise. ``calls`` counts them with repetitions.
    """

    peak: int
    output: int
    operators: list[str]
    calls: int

    @property
    def workspace(self) -> int:
        return max(0, self.peak - self.output)


def results_of(result: Any) -> list[torch.Tensor]:
    """Tensors in what a call returned: itself, or those of a tuple."""
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for t in result if isinstance(t, torch.Tensor)] if isinstance(result, tuple | list) else []


def footprint(call: Callable[[], Any], inputs: Sequence[torch.Tensor], device: torch.device) -> Footprint:
    """Runs ``call`` once under the profiler. Nothing else of this process may allocate meanwhile."""
    cuda = device.type == "cuda"
    before = 0
    if cuda:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    profile = torch.autograd.profiler.profile(use_device="cuda" if cuda else None, profile_memory=not cuda)
    with _quiet_stderr(), profile as profiler:
        result = call()
        if cuda:
            torch.cuda.synchronize(device)
    events = list(profiler.kineto_results.events()) if profiler.kineto_results is not None else []
    if cuda:
        peak = torch.cuda.max_memory_allocated(device) - before
        names = [e.name() for e in _in_order(events) if e.device_type() == DeviceType.CUDA]
    else:
        peak = _peak(e.nbytes() for e in _in_order(events) if e.name() == "[memory]")
        names = [e.name() for e in _in_order(events) if _is_operator(e.name())]
    return Footprint(peak, _output_bytes(results_of(result), inputs), list(dict.fromkeys(names)), len(names))


@contextlib.contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Sends descriptor 2 nowhere: the tracing library writes to it at each start and stop, at any log level."""
    try:
        kept = os.dup(2)
    except OSError:  # closed: nobody is disturbed
        yield
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _in_order(events: Iterable[Any]) -> list[Any]:
    return sorted(events, key=lambda e: e.start_ns())


def _is_operator(name: str) -> bool:
    return "::" in name and not name.startswith(_NOT_OPERATORS)


def _peak(changes: Iterable[int]) -> int:
    now = peak = 0
    for change in changes:
        now += change
        peak = max(peak, now)
    return peak


def _output_bytes(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> int:
    given = {t.untyped_storage().data_ptr() for t in inputs}
    mine = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in results}
    return sum(n for address, n in mine.items() if address not in given)
