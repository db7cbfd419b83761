"""A decode step over a contiguous cache, layer by layer: over the valid keys, or over the whole capacity."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def trimmed(q: Tensor, cache: Tensor, *, kv_lens: Tensor) -> Tensor:
    """Attention of one new token per request and layer: (B, layers, Hq, D).

    Args:
        q: (B, layers, Hq, D).
        cache: (B, layers, 2, Hkv, capacity, D); keys at index 0 of the third axis, values at 1.
        kv_lens: (B,) int32; valid keys of each request, read on the host. What lies past them is not read.
    """
    out = torch.empty_like(q)
    for b, valid in enumerate(kv_lens.tolist()):
        for layer in range(q.shape[1]):
            k, v = cache[b, layer, :, :, :valid].unbind(0)
            out[b, layer] = step(q[b, layer], k, v, None)
    return out


def fixed(q: Tensor, cache: Tensor, *, kv_lens: Tensor) -> Tensor:
    """The same over the whole capacity, with a mask: shapes as in :func:`trimmed`. What is past ``kv_lens`` must be
    finite."""
    out = torch.empty_like(q)
    position = torch.arange(cache.shape[4], device=q.device)
    for b, valid in enumerate(kv_lens.tolist()):
        mask = torch.where(position < valid, 0.0, -math.inf)
        for layer in range(q.shape[1]):
            k, v = cache[b, layer].unbind(0)
            out[b, layer] = step(q[b, layer], k, v, mask)
    return out


def step(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """(Hq, D) from q (Hq, D), k and v (Hkv, n, D); softmax in float32."""
    rows = torch.unflatten(q, 0, (k.shape[0], -1))
    scores = torch.bmm(rows, k.transpose(1, 2)).float() / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + mask
    return torch.bmm(torch.softmax(scores, -1).to(v.dtype), v).flatten(0, 1)
