"""Readable oracle of layer norm."""

from __future__ import annotations

import torch
from torch import Tensor


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis; x (rows, H), weight and bias (H,).

    Returned in ``dtype``; half types are computed in float32 and rounded once, since sums in them overflow.
    """
    wide = torch.promote_types(dtype, torch.float32)
    row = x.to(wide)
    centred = row - row.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return (centred / torch.sqrt(variance + eps) * weight.to(wide) + bias.to(wide)).to(dtype)
