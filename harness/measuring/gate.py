"""The correctness gate: nothing is timed before its results are right, and no timing is kept whose last result is not.

Rule: max|out - ref| <= 2 max|low - ref| + atol, where ``ref`` is the oracle in float64 and ``low`` the oracle
computed in the case's dtype, so that the allowance follows dtype, shape and values.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.model import Params, Status, Workload, content_key

from .failures import CaseFailed, failure_of, is_out_of_memory
from .operations import Inputs, is_backward, operation_of
from .params import dtype_name
from .timing.clock import Account

#: Slack in units of the dtype's epsilon times the largest reference value: one rounding of the result for
#: half types; float32 sums in another order differ by more roundings than the oracle's own order shows.
_ATOL_EPSILONS = {torch.float64: 1 << 20, torch.float32: 16, torch.float16: 1, torch.bfloat16: 1}

Function = Callable[..., Any]

#: Freed blocks are handed out again in no promised order; a kernel allocates a few before its result.
_POISONED_BLOCKS = 4


@dataclass(frozen=True)
class Expected:
    """Reference of one result: float64 values and the largest error allowed."""

    name: str
    values: torch.Tensor
    tolerance: float


@dataclass
class Problem:
    """Inputs of one workload and what must come out of them; shared by all backends of the workload."""

    inputs: Inputs
    backward: bool
    fingerprint: tuple[tuple[int, ...], ...]
    grad_out: torch.Tensor | None = None
    expected: list[Expected] = field(default_factory=list)
    others: list[Expected] = field(default_factory=list)
    flips: tuple[int, ...] = (1, 2, 1)

    def unchanged(self) -> bool:
        """Whether the inputs still are what was made."""
        return fingerprint(self.inputs.everything()) == self.fingerprint

    @property
    def nbytes(self) -> int:
        """Memory that keeping this costs."""
        kept = [e.values for e in (*self.expected, *self.others)] + ([] if self.grad_out is None else [self.grad_out])
        return self.inputs.bytes + sum(t.numel() * t.element_size() for t in kept)


def fingerprint(tensors: Sequence[torch.Tensor]) -> tuple[tuple[int, ...], ...]:
    """Sums of the raw bytes behind each tensor, by position modulo 16 words; poison and padding included.

    Bits are summed as integers, so NaN counts like anything else, at the speed of memory.
    """
    found = []
    for tensor in tensors:
        raw = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        whole = raw.numel() // 128 * 128
        sums = raw[:whole].view(torch.int64).view(-1, 16).sum(0)
        found.append((*sums.tolist(), int(raw[whole:].sum(dtype=torch.int64)), raw.numel()))
    return tuple(found)


class Problems:
    """Makes problems and keeps the last ones, up to ``budget_bytes`` of tensors."""

    def __init__(self, device: str, budget_bytes: int) -> None:
        self._device = device
        self._budget = budget_bytes
        self._kept: OrderedDict[str, Problem] = OrderedDict()

    def get(self, workload: Workload, seed: int, account: Account, oracle: Function | None) -> Problem:
        """The problem of a workload and a seed; with an oracle, its reference is there too."""
        key = content_key(workload.operation, workload.params, seed)
        problem = self._kept.pop(key, None)
        if problem is None:
            with account.spend("inputs_s"):
                problem = _problem(workload, seed, self._device)
        if oracle is not None and not problem.expected:
            from .others import other_expected

            with account.spend("oracle_s"):
                expected = reference(problem, workload.params, oracle)
                problem.others = other_expected(problem, workload, oracle)
                problem.expected = expected
        self._kept[key] = problem
        while len(self._kept) > 1 and sum(p.nbytes for p in self._kept.values()) > self._budget:
            self._kept.popitem(last=False)
        return problem

    def drop(self, problem: Problem) -> None:
        """Forgets a problem whose inputs a kernel has spoilt, or that there is no memory for."""
        for key in [k for k, p in self._kept.items() if p is problem]:
            del self._kept[key]

    def clear(self) -> None:
        """Frees everything kept."""
        self._kept.clear()


def _problem(workload: Workload, seed: int, device: str) -> Problem:
    backward = is_backward(workload.params)
    operation = operation_of(workload)
    inputs = operation.inputs(workload.params, seed, device)
    grad_out = None
    if backward:
        generator = torch.Generator().manual_seed(seed + 1)
        q = next(iter(inputs.tensors.values()))
        size = workload.params.get("head_dim_v") or q.shape[-1]
        grad_out = torch.randn((*q.shape[:-1], int(size)), generator=generator).to(device=q.device, dtype=q.dtype)
    return Problem(inputs, backward, fingerprint(inputs.everything()), grad_out, flips=operation.flips)


def reference(problem: Problem, params: Params, oracle: Function) -> list[Expected]:
    """Results of the oracle in float64, with tolerances from the oracle in the case's dtype."""
    dtype: torch.dtype = getattr(torch, dtype_name(params))
    try:
        exact = _run(problem, oracle, torch.float64)
        rough = _run(problem, oracle, dtype)
    except Exception as error:
        cause = "ran out of memory" if is_out_of_memory(error) else "failed"
        detail = failure_of(error, "computing the reference").detail
        raise CaseFailed(Status.INVALID, f"the oracle {cause}, so nothing can be said: {detail}") from None
    names = ("grad_q", "grad_k", "grad_v") if problem.backward else ("out",)
    expected = []
    for name, ref, low in zip(names, exact, rough, strict=True):
        rough_error = _largest(low.to(torch.float64) - ref)
        if not math.isfinite(rough_error):  # overflow in the rough computation excuses nothing
            rough_error = 0.0
        scale = max(_largest(ref), 1e-3)
        atol = _ATOL_EPSILONS[dtype] * torch.finfo(dtype).eps * scale
        expected.append(Expected(name, ref, 2.0 * rough_error + atol))
    return expected


def _run(problem: Problem, oracle: Function, dtype: torch.dtype) -> list[torch.Tensor]:
    """Output, or gradients, of the oracle. float64 gradients need float64 leaves, or they would be rounded."""
    tensors = problem.inputs.tensors
    if not problem.backward:
        with torch.no_grad():
            return [oracle(*tensors.values(), **problem.inputs.options, dtype=dtype)]
    leaves = [t.detach().to(dtype).requires_grad_() for t in tensors.values()]
    out = oracle(*leaves, **problem.inputs.options, dtype=dtype)
    assert problem.grad_out is not None
    return list(torch.autograd.grad(out, leaves, problem.grad_out.to(out.dtype)))


def _largest(values: torch.Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def largest(expected: Sequence[Expected]) -> float:
    """Largest absolute value that the oracle says; 0 for empty results."""
    return max((_largest(e.values) for e in expected), default=0.0)


def poison_free_memory(like: Sequence[Expected], dtype: torch.dtype) -> None:
    """Fills blocks of the results' sizes with NaN and frees them, so that a kernel which leaves parts of an
    uninitialised result unwritten tends to show NaN and not the last right answer."""
    blocks = []
    for expected in like:
        nan = torch.full(expected.values.shape, torch.nan, dtype=dtype, device=expected.values.device)
        blocks += [nan, *(nan.clone() for _ in range(_POISONED_BLOCKS - 1))]


def as_list(result: Any, problem: Problem) -> list[Any]:
    """The results of one call, as :func:`check` takes them."""
    return list(result) if problem.backward and isinstance(result, tuple) else [result]


def check(results: Sequence[Any], expected: Sequence[Expected], dtype: torch.dtype) -> float:
    """Largest error of the results. Raises :class:`CaseFailed` WRONG or NON_FINITE."""
    worst = 0.0
    for result, want in zip(results, expected, strict=True):
        worst = max(worst, _check_one(result, want, dtype))
    return worst


def _check_one(result: Any, want: Expected, dtype: torch.dtype) -> float:
    if not isinstance(result, torch.Tensor):
        raise CaseFailed(Status.WRONG, f"{want.name} is {type(result).__name__}, not a tensor")
    if result.shape != want.values.shape or result.dtype != dtype:
        raise CaseFailed(
            Status.WRONG,
            f"{want.name} is {tuple(result.shape)} {result.dtype}, expected {tuple(want.values.shape)} {dtype}",
        )
    if not result.numel():
        return 0.0
    error = (result.to(torch.float64) - want.values).abs_()
    # NaN and infinity survive max: one pass finds both.
    largest = float(error.max())
    if largest <= want.tolerance:
        return largest
    finite = torch.isfinite(result)
    if not bool(finite.all()):
        count = int(result.numel() - finite.sum())
        at = _index(int(finite.logical_not_().flatten().int().argmax()), result.shape)
        value = float(result[at])
        raise CaseFailed(
            Status.NON_FINITE,
            f"{want.name} has {count} of {result.numel()} values not finite, the first {value} at {list(at)}",
        )
    at = _index(int(error.flatten().argmax()), error.shape)
    wrong = int((error > want.tolerance).sum())
    raise CaseFailed(
        Status.WRONG,
        f"{want.name}{list(at)} is {float(result[at]):.9g}, the oracle says {float(want.values[at]):.9g}: "
        f"error {largest:.3g} above {want.tolerance:.3g} (2 x low-precision error + atol); "
        f"{wrong} of {error.numel()} values are off",
    )


def _index(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    at: list[int] = []
    for size in reversed(shape):
        flat, rest = divmod(flat, size)
        at.append(rest)
    return tuple(reversed(at))
