"""What one call allocates and which operators or kernels it dispatches. One run, outside all timing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]

from .allocations import attribute, changes
from .quiet import quiet_stderr

#: Engine bookkeeping of the backward pass; what the nodes call is listed by itself.
_NOT_OPERATORS = ("autograd::engine::",)


@dataclass(frozen=True)
class Footprint:
    """``peak`` is above what was allocated before the call; ``output`` counts the storages of the results that
    are no storages of the inputs; ``workspace`` is the rest of the peak. All in bytes.

    ``operators``: on a CPU every operator that passed the dispatcher, composite ones and the ``aten``
    operators that they call alike (names with ``::``), each once, in order of first dispatch. On CUDA the
    kernels that ran, likewise. ``calls`` counts them with repetitions. ``parts``: what the peak was held for
    (:data:`harness.measuring.allocations.PARTS`), which sums to it.
    """

    peak: int
    output: int
    operators: list[str]
    calls: int
    parts: dict[str, int] = field(default_factory=dict)

    @property
    def workspace(self) -> int:
        return max(0, self.peak - self.output)


def results_of(result: Any) -> list[torch.Tensor]:
    """Tensors in what a call returned: itself, or those of a tuple."""
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for t in result if isinstance(t, torch.Tensor)] if isinstance(result, tuple | list) else []


def footprint(
    call: Callable[[], Any],
    inputs: Sequence[torch.Tensor],
    device: torch.device,
    *,
    results_are: str = "results",
) -> Footprint:
    """Runs ``call`` once under the profiler. Nothing else of this process may allocate meanwhile.

    ``results_are`` is the part that what it returns belongs to: ``gradients`` for a backward pass.
    """
    cuda = device.type == "cuda"
    before = 0
    if cuda:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    profile = torch.autograd.profiler.profile(use_device="cuda" if cuda else None, profile_memory=True)
    with quiet_stderr(), profile as profiler:
        result = call()
        if cuda:
            torch.cuda.synchronize(device)
    events = list(profiler.kineto_results.events()) if profiler.kineto_results is not None else []
    known = torch.cuda.max_memory_allocated(device) - before if cuda else None
    returned = {t.untyped_storage().data_ptr() for t in results_of(result)}
    peak, parts = attribute(changes(profiler, device.type), returned, results_are=results_are, peak=known)
    if cuda:
        names = [e.name() for e in _in_order(events) if e.device_type() == DeviceType.CUDA and e.name() != "[memory]"]
    else:
        names = [e.name() for e in _in_order(events) if _is_operator(e.name())]
    output = _output_bytes(results_of(result), inputs)
    return Footprint(peak, output, list(dict.fromkeys(names)), len(names), parts)


def _in_order(events: Iterable[Any]) -> list[Any]:
    return sorted(events, key=lambda e: e.start_ns())


def _is_operator(name: str) -> bool:
    return "::" in name and not name.startswith(_NOT_OPERATORS)


def _output_bytes(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> int:
    given = {t.untyped_storage().data_ptr() for t in inputs}
    mine = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in results}
    return sum(n for address, n in mine.items() if address not in given)
