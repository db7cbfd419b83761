"""Readable oracle: one request, one layer, one head at a time, over the valid keys alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def kv_cache(q: Tensor, cache: Tensor, *, kv_lens: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """As :func:`kernels.kv_cache.steps.trimmed`, computed and returned in ``dtype``: (B, layers, Hq, D)."""
    _, layers, heads_q, dim = q.shape
    group = heads_q // cache.shape[3]
    out = torch.empty(q.shape, dtype=dtype, device=q.device)
    for b, n in enumerate(kv_lens.tolist()):
        for layer in range(layers):
            for head in range(heads_q):
                k, v = cache[b, layer, :, head // group, :n].to(dtype)
                scores = k @ q[b, layer, head].to(dtype) / math.sqrt(dim)
                out[b, layer, head] = torch.softmax(scores, 0) @ v
    return out
