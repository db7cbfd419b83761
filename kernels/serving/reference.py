"""Readable oracle: one token, one head at a time."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..layer_norm import reference
from .decode import EPS


def serving(
    x: Tensor, cache: Tensor, weight: Tensor, bias: Tensor, *, schedule: Tensor, note: Any = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:  # fmt: skip
    """As :func:`kernels.serving.decode.trimmed`, computed and returned in ``dtype``."""
    dim, group = cache.shape[-1], x.shape[1] // cache.shape[-1] // cache.shape[2]
    q = torch.unflatten(reference.layer_norm(x, weight, bias, eps=EPS, dtype=dtype), 1, (-1, dim))
    out = torch.empty(q.shape, dtype=dtype, device=x.device)
    at = 0
    for row in schedule.tolist():
        for slot, valid in enumerate(row):
            if not valid:
                continue
            for head in range(q.shape[1]):
                k, v = cache[slot, :, head // group, :valid].to(dtype)
                weights = torch.softmax(k @ q[at, head] / math.sqrt(dim), 0)
                out[at, head] = weights @ v
            at += 1
    return out
