"""Layer norm, sound and not. ``fp32`` and ``native`` are right; the others are what half-precision code does wrong.

All take x (rows, H), weight and bias (H,), ``eps``, and return (rows, H) in the dtype of x.
"""

from __future__ import annotations

import torch
from torch import Tensor


def native(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """torch's own, which accumulates in float32."""
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def fp32(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """Mean and centred variance in float32, rounded once at the end."""
    wide = x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    inverse = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return (centred * inverse * weight.float() + bias.float()).to(x.dtype)


def narrow_sums(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """The sum of the centred squares kept in the dtype of x. Where that leaves float16's range (65504) the variance is
    infinite and every result is the bias: finite, and wrong."""
    wide = x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    total = centred.square().sum(-1, keepdim=True).to(x.dtype)
    normal = centred * torch.rsqrt(total / x.shape[-1] + eps)
    return torch.addcmul(bias, normal.to(x.dtype), weight)


def narrow_eps(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """Sound sums, and eps added in the dtype of x: below 3e-8 float16 rounds it to 0, and a constant row becomes
    0 * infinity."""
    wide = x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True).to(x.dtype)
    return torch.addcmul(bias, (centred * torch.rsqrt(variance + eps)).to(x.dtype), weight)


def narrow(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """Everything in the dtype of x: partial sums, E[x^2] - E[x]^2, eps, the result."""
    n = x.shape[-1]
    mean = narrow_sum(x) / n
    variance = narrow_sum(x * x) / n - mean * mean
    return (x - mean) * torch.rsqrt(variance + torch.tensor(eps, dtype=x.dtype, device=x.device)) * weight + bias


def narrow_wide_eps(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """:func:`narrow` under the remedy of a larger eps: 1e-3, whatever was asked for."""
    return narrow(x, weight, bias, eps=max(eps, 1e-3))


def narrow_guarded(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """:func:`narrow` under the remedy of ``nan_to_num``: NaN becomes 0, infinity the largest number."""
    return torch.nan_to_num(narrow(x, weight, bias, eps=eps))


def narrow_sum(x: Tensor) -> Tensor:
    """Sum over the last axis (kept, of size 1), halves added to halves and rounded to the dtype of x each time."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        rest = x[..., 2 * half :]
        x = torch.cat((x[..., :half] + x[..., half : 2 * half], rest), -1)
    return x


def sequential_sum(x: Tensor) -> Tensor:
    """Sum over the last axis (kept, of size 1), one element after the other, rounded to the dtype of x each time."""
    total = torch.zeros_like(x[..., :1])
    for column in x.unbind(-1):
        total = total + column[..., None]
    return total
