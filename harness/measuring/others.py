"""A second question for the gate: other values in the same buffers.

Timing repeats one call on one set of inputs, so a kernel that remembers results, or what it derived from one input, by
address looks right and fast. Before it is trusted it is called once, outside all timing, with other values in the very
buffers it was timed on.

Forward: the signs of all of q and v and of every second element of k are flipped, which changes all scores and is
undone bit for bit, poison included (each operation says which of its elements: ``flips``). What must come out the
oracle says for the first group of heads, since one group is as good a witness as all; for all of it where there are no
heads. Backward: the sign of the incoming gradient is flipped, so that of each result must be; what
the forward pass remembers shows in the forward case.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from harness.model import Workload

from . import gate
from .failures import CaseFailed
from .operations import Inputs, operation_of
from .params import integer

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_WORDS = "called with other values in the same buffers: {}; a result is remembered by the address of its inputs"


@contextlib.contextmanager
def other_values(problem: gate.Problem) -> Iterator[None]:
    """Within the block the problem's buffers hold other values; after it the old ones, bit for bit."""
    _flip(problem)
    try:
        yield
    finally:
        _flip(problem)


def other_expected(problem: gate.Problem, workload: Workload, oracle: gate.Function) -> list[gate.Expected]:
    """What must come out under :func:`other_values`, for the first key-value head and its query heads if any."""
    if problem.backward:
        return []
    operation, params = operation_of(workload), workload.params
    parts = problem.inputs.tensors
    if operation.head_axes is not None:
        group = integer(params, "heads_q") // integer(params, "heads_kv")
        parts = {
            name: tensor.narrow(axis, 0, min(count, tensor.shape[axis]))
            for (name, tensor), axis, count in zip(parts.items(), operation.head_axes, (group, 1, 1), strict=True)
        }
    part = gate.Problem(Inputs(parts, problem.inputs.options), False, (), flips=problem.flips)
    with other_values(problem):
        return gate.reference(part, params, oracle)


def check_others(call: Callable[[], Any], problem: gate.Problem, dtype: torch.dtype) -> None:
    """Call under :func:`other_values`. Raises :class:`CaseFailed` WRONG or NON_FINITE."""
    with other_values(problem):
        results = gate.as_list(call(), problem)
        try:
            if problem.backward:
                gate.check([r.neg() if isinstance(r, torch.Tensor) else r for r in results], problem.expected, dtype)
            else:
                gate.check([_first_heads(r, problem.others) for r in results], problem.others, dtype)
        except CaseFailed as failed:
            raise CaseFailed(failed.status, _WORDS.format(failed.detail)) from None


def _first_heads(result: Any, expected: list[gate.Expected]) -> Any:
    if not isinstance(result, torch.Tensor) or result.dim() < 2 or not expected:
        return result
    return result.narrow(1, 0, min(expected[0].values.shape[1], result.shape[1]))


def _flip(problem: gate.Problem) -> None:
    if problem.grad_out is not None:
        _flip_signs(problem.grad_out, 1)
        return
    seen: set[int] = set()
    for tensor, step in zip(problem.inputs.tensors.values(), problem.flips, strict=True):
        address = tensor.untyped_storage().data_ptr()
        if address not in seen:
            seen.add(address)
            _flip_signs(tensor, step)


def _flip_signs(tensor: torch.Tensor, step: int) -> None:
    """Flip the sign bit of every ``step``-th element of the storage: a NaN's too, which arithmetic might lose."""
    integers = _INTEGERS[tensor.element_size()]
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    whole = raw.numel() // tensor.element_size() * tensor.element_size()
    raw[:whole].view(integers)[::step].bitwise_xor_(torch.iinfo(integers).min)
