"""Readable oracle: who is refused follows from how many blocks are free, and who is not reads what it wrote."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def block_pool(
    values: Tensor, *, events: Tensor, capacity: int, note: Any = None, dtype: torch.dtype = torch.float64
) -> Tensor:
    """As :func:`kernels.block_pool.pools.paged`, returned in ``dtype``."""
    out = torch.zeros(values.shape, dtype=dtype, device=values.device)
    free = capacity
    held: dict[int, int] = {}
    for request, blocks in events.tolist():
        if not blocks:
            free += held.pop(request, 0)
        elif blocks <= free:
            held[request] = blocks
            free -= blocks
            out[request] = values[request].to(dtype)
    return out
