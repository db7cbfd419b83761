"""Backends that behave in one particular way; named as ``attention_fakes:FUNCTION``."""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.nn.functional as F

left_behind: list[weakref.ref[torch.Tensor]] = []


def good(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    """Right for equal lengths."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def widened(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    """Right for keys and values of 8 bits, and for equal lengths."""
    return good(q, k.to(q.dtype), v.to(q.dtype), causal=causal)


def known_workspace(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    """Right, with 1 MiB of workspace that lives until the end."""
    extra = torch.empty(1 << 20, dtype=torch.uint8)
    out = good(q, k, v, causal=causal)
    del extra
    return out


def wrong_value(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    out = good(q, k, v, causal=causal).clone()
    out[0, 1, 2, 3] += 0.25
    return out


def wrong_grad(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    """Right values, gradient of v doubled."""
    return good(q, k, v * 2 - v.detach(), causal=causal)


def not_a_number(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    out = good(q, k, v, causal=causal).clone()
    out[0, 0, 1, 2] = torch.nan
    return out


def partly_unwritten(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    out = torch.empty(q.shape, dtype=q.dtype)
    out[:, :, :-1] = good(q, k, v, causal=causal)[:, :, :-1]
    return out


def writes_inputs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    out = good(q, k, v, causal=causal).clone()
    k[0, 0, 0, 0] += 1
    return out


_calls = 0


def writes_inputs_later(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    global _calls
    _calls += 1
    out = good(q, k, v, causal=causal).clone()
    if _calls > 3:
        v.mul_(1.5)
    return out


def wrong_shape(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    return good(q, k, v, causal=causal).transpose(1, 2).contiguous()


def no_tensor(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> Any:
    return None


def _allocate() -> torch.Tensor:
    some = torch.ones(1 << 20)
    left_behind.append(weakref.ref(some))
    return some


def too_large(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    first = _allocate()
    return first + torch.empty(1 << 50)


def memory_error(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    raise MemoryError


def not_implemented(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    raise NotImplementedError("head_dim 8 is not supported by this kernel")


def raises(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    held = _allocate()
    raise KeyError(f"no tile for {held.numel()}")


def exits(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    raise SystemExit(3)


def interrupted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    raise KeyboardInterrupt


_counts: dict[str, int] = {}


def wrong_from_the_fourth(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    """Right for the gate, wrong for the clock."""
    _counts["fourth"] = _counts.get("fourth", 0) + 1
    return good(q, k, v, causal=causal) * (1 if _counts["fourth"] < 4 else 1.5)


def wrong_when_told(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    return good(q, k, v, causal=causal) * (2 if _counts.get("told") else 1)


_remembered: dict[tuple[str, int], torch.Tensor] = {}


def _once(what: str, tensor: torch.Tensor, make: Any) -> torch.Tensor:
    key = (what, tensor.data_ptr())
    if key not in _remembered:
        _remembered[key] = make().clone()
    return _remembered[key]


def remembers_result(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    return _once("out", q, lambda: good(q, k, v, causal=causal))


def remembers_q(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    return good(_once("q", q, lambda: q), k, v, causal=causal)


def remembers_k(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    return good(q, _once("k", k, lambda: k), v, causal=causal)


def remembers_v(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    return good(q, k, _once("v", v, lambda: v), causal=causal)


def remembers_q_and_k(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    """As one that keeps the probabilities."""
    return good(_once("q", q, lambda: q), _once("k", k, lambda: k), v, causal=causal)


class _RemembersGrad(torch.autograd.Function):
    """Gradients by the address of the incoming one."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.causal = causal
        return good(q, k, v, causal=causal)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (grad,) = grads
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in ctx.saved_tensors]
            out = good(*leaves, causal=ctx.causal)
            found = torch.autograd.grad(out, leaves, grad)
        return (*(_once(f"grad {i}", grad, lambda g=g: g) for i, g in enumerate(found)), None)  # type: ignore[misc]


def remembers_grad(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    return _RemembersGrad.apply(q, k, v, causal)  # type: ignore[no-any-return, no-untyped-call]
