"""Softmax a block of columns at a time, with exponents in the dtype of x and their sum in float32.

x is (rows, columns); ``block`` columns are seen at once. Exponents are x less a maximum; ``clip`` bounds them from
above. Against the true or the running maximum they are never positive, so a positive clip does nothing there; against a
stale maximum it is what stands between exp and the end of float16's range, ln 65504 = 11.09.
"""

from __future__ import annotations

import torch
from torch import Tensor


def against_true(x: Tensor, *, block: int, clip: float | None = None) -> Tensor:
    """Two passes: the row's maximum first."""
    return _from_fixed(x, x.amax(-1, keepdim=True), block, clip)


def against_stale(x: Tensor, *, block: int, clip: float | None = None) -> Tensor:
    """One pass against the maximum of the first block, which later columns may exceed: overflows, or is clipped."""
    return _from_fixed(x, x[..., :block].amax(-1, keepdim=True), block, clip)


def against_running(x: Tensor, *, block: int, clip: float | None = None) -> Tensor:
    """One pass: each block against the maximum so far; the sum of earlier ones is rescaled."""
    top = torch.full_like(x[..., :1], -torch.inf)
    total = torch.zeros(top.shape, dtype=torch.float32, device=x.device)
    parts, tops = [], []
    for part in torch.split(x, block, -1):
        now = torch.maximum(top, part.amax(-1, keepdim=True))
        weights = _exp(part - now, clip)
        total = total * torch.exp((top - now).float()) + weights.sum(-1, keepdim=True, dtype=torch.float32)
        top = now
        parts.append(weights)
        tops.append(now)
    scaled = [w.float() * torch.exp((m - top).float()) / total for w, m in zip(parts, tops, strict=True)]
    return torch.cat(scaled, -1).to(x.dtype)


def _from_fixed(x: Tensor, top: Tensor, block: int, clip: float | None) -> Tensor:
    weights = [_exp(part - top, clip) for part in torch.split(x, block, -1)]
    total = sum(w.sum(-1, keepdim=True, dtype=torch.float32) for w in weights)
    return torch.cat([w.float() / total for w in weights], -1).to(x.dtype)


def _exp(exponent: Tensor, clip: float | None) -> Tensor:
    return torch.exp(exponent if clip is None else exponent.clamp(max=clip))
