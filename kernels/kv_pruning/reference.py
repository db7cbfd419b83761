"""Readable oracle: one query, one head at a time, over the keys that are kept."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .pruning import importance, kept


def kv_pruning(
    q: Tensor, k: Tensor, v: Tensor, *, observed: Tensor, keep: float, shared: bool, dtype: torch.dtype = torch.float64
) -> Tensor:
    """As :func:`kernels.kv_pruning.pruning.compacted`, computed and returned in ``dtype``.

    Which keys stay is part of the question, decided by the same function: two that nearly tie may be told apart
    either way.
    """
    batch, heads_q, steps, dim = q.shape
    group = heads_q // k.shape[1]
    positions = kept(importance(observed, k), keep, shared)
    out = torch.empty(q.shape, dtype=dtype, device=q.device)
    for b in range(batch):
        for head in range(heads_q):
            mine = positions[b, head // group]
            keys, values = (t[b, head // group][mine].to(dtype) for t in (k, v))
            for i in range(steps):
                scores = keys @ q[b, head, i].to(dtype) / math.sqrt(dim)
                out[b, head, i] = torch.softmax(scores, 0) @ values
    return out
