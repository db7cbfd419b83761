"""Oracle of a copy."""

from __future__ import annotations

import torch
from torch import Tensor


def stream(x: Tensor, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """x in ``dtype``."""
    return x.to(dtype)
