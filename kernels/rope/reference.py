"""Readable oracle of rotary embedding: each pair as a complex number, turned by its position."""

from __future__ import annotations

import torch
from torch import Tensor

from .variants import BASE


def rope(x: Tensor, *, lens: Tensor, table: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """As :func:`kernels.rope.variants.per_length`, in ``dtype``. Angles are in float64, or in what ``dtype`` has at
    float32 where it is narrower, since positions leave half types at 2048."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    half = x.shape[2] // 2
    rates = BASE ** (-torch.arange(half, dtype=wide, device=x.device) / half)
    rows = []
    for part in torch.split(x, lens.tolist()):
        angles = torch.arange(len(part), dtype=wide, device=x.device)[:, None] * rates
        turn = torch.polar(torch.ones_like(angles), angles)[:, None]
        pairs = torch.complex(part[..., :half].to(wide), part[..., half:].to(wide)) * turn
        rows.append(torch.cat([pairs.real, pairs.imag], -1))
    return torch.cat(rows).to(dtype)
