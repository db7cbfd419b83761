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
