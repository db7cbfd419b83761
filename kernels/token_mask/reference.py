"""Readable oracle: one request, one head, one step at a time."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def token_mask(q: Tensor, k: Tensor, v: Tensor, *, seen: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """As :func:`kernels.token_mask.steps.dynamic`, computed and returned in ``dtype``."""
    batch, heads, steps, dim = q.shape
    length = k.shape[2]
    out = torch.empty(q.shape, dtype=dtype, device=q.device)
    for b in range(batch):
        for i in range(steps):
            at = length - steps + i
            allowed = seen[b, : at + 1].clone()
            allowed[at] = True
            keys = allowed.nonzero()[:, 0].to(q.device)
            for head in range(heads):
                scores = k[b, head, keys].to(dtype) @ q[b, head, i].to(dtype) / math.sqrt(dim)
                out[b, head, i] = torch.softmax(scores, 0) @ v[b, head, keys].to(dtype)
    return out
