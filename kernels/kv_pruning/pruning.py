"""Which keys of a cache to keep, and decode steps over them.

The importance of a key is the attention that observed queries gave it, each query weighted by how far its entropy stays
below the most that it could be: a query that looks everywhere says nothing of what matters. Decided in float32 whatever
the dtype. ``keep`` is the share of keys that stay, at least one; at 1.0 all stay, in their order.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..kv_cache.steps import step


def importance(observed: Tensor, k: Tensor) -> Tensor:
    """(B, Hkv, L) float32: attention to each key, weighted by how sure its query was.

    Args:
        observed: (B, Hq, W, D); queries seen so far. k: (B, Hkv, L, D).
    """
    probability = attention_mass(observed, k)
    entropy = -(probability * probability.clamp_min(1e-30).log()).sum(-1, keepdim=True)
    sure = 1.0 - entropy / math.log(max(k.shape[2], 2))
    return (probability * sure.clamp_min(1e-6)).sum(2)


def attention_mass(queries: Tensor, k: Tensor) -> Tensor:
    """(B, Hkv, group * W, L) float32: softmax of the scores of each query over all keys."""
    rows = torch.unflatten(queries, 1, (k.shape[1], -1)).flatten(2, 3).float()
    return torch.softmax(rows @ k.float().transpose(2, 3) / math.sqrt(k.shape[-1]), -1)


def kept(scores: Tensor, keep: float, shared: bool) -> Tensor:
    """(B, Hkv, n) int64, rising: the n = ceil(keep * L) keys of the highest scores (B, Hkv, L), each head its own, or
    the same for all heads (``shared``)."""
    if not 0 < keep <= 1:
        raise ValueError(f"keep is a share above 0 and at most 1, not {keep!r}")
    n = max(1, math.ceil(keep * scores.shape[2] - 1e-9))
    if shared:
        scores = scores.sum(1, keepdim=True).expand_as(scores)
    return scores.topk(n, -1, sorted=False).indices.sort(-1).values


def compact(cache: Tensor, positions: Tensor) -> Tensor:
    """(B, Hkv, n, D): the rows of a cache (B, Hkv, L, D) at ``positions`` (B, Hkv, n), in new memory."""
    return cache.gather(2, positions[..., None].expand(-1, -1, -1, cache.shape[3]))


def compacted(q: Tensor, k: Tensor, v: Tensor, *, observed: Tensor, keep: float, shared: bool) -> Tensor:
    """Decode steps over a cache that was pruned once: (B, Hq, steps, D).

    Args:
        q: (B, Hq, steps, D). k, v: (B, Hkv, L, D). observed: (B, Hq, W, D).
        keep: share of keys that stay. shared: whether all heads keep the same keys.
    """
    if keep < 1:
        positions = kept(importance(observed, k), keep, shared)
        k, v = compact(k, positions), compact(v, positions)
    return attend(q, k, v, None)


def masked(q: Tensor, k: Tensor, v: Tensor, *, observed: Tensor, keep: float, shared: bool) -> Tensor:
    """The same over the whole cache with a mask; arguments as in :func:`compacted`."""
    if keep >= 1:
        return attend(q, k, v, None)
    positions = kept(importance(observed, k), keep, shared)
    mask = torch.full(k.shape[:3], -math.inf, device=k.device).scatter_(2, positions, 0.0)
    return attend(q, k, v, mask)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """(B, Hq, steps, D), one step after the other, as a server decodes; ``mask`` (B, Hkv, L) is added to scores."""
    out = torch.empty_like(q)
    for b in range(q.shape[0]):
        held = None if mask is None else mask[b, :, None]
        for i in range(q.shape[2]):
            out[b, :, i] = step(q[b, :, i], k[b], v[b], held)
    return out
