"""Decode steps of a server whose slots hold requests of different lengths."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..kv_cache import steps
from ..layer_norm import variants

EPS = 1e-5

Norm = Callable[..., Tensor]
#: (Hq, D) from q (Hq, D), one slot of the cache (2, Hkv, capacity, D) and its valid keys.
Attend = Callable[[Tensor, Tensor, int], Tensor]


def trimmed(x: Tensor, cache: Tensor, weight: Tensor, bias: Tensor, *, schedule: Tensor, note: Any) -> Tensor:
    """One token for every request that a step holds: layer norm, then attention with the result as queries.

    Args:
        x: (tokens, H), in the order of steps and slots; H is Hq x D. weight, bias: (H,).
        cache: (max_batch, 2, Hkv, capacity, D).
        schedule: (steps, max_batch) int32 on the host; valid keys of each slot, 0 where it is empty.
        note: called with "start" before the first step and "step" after each.

    Returns:
        (tokens, Hq, D).
    """
    return run(x, cache, weight, bias, schedule, note, variants.fp32, valid_keys)


def fixed(x: Tensor, cache: Tensor, weight: Tensor, bias: Tensor, *, schedule: Tensor, note: Any) -> Tensor:
    """The same over the whole capacity of each slot, under a mask: shapes as in :func:`trimmed`."""
    return run(x, cache, weight, bias, schedule, note, variants.fp32, whole_capacity)


def run(
    x: Tensor, cache: Tensor, weight: Tensor, bias: Tensor, schedule: Tensor, note: Any, norm: Norm, attend: Attend
) -> Tensor:
    """:func:`trimmed` with any layer norm and attention."""
    out = torch.empty((len(x), x.shape[1] // cache.shape[-1], cache.shape[-1]), dtype=x.dtype, device=x.device)
    at = 0
    note("start")
    for row in schedule.tolist():
        active = [(slot, valid) for slot, valid in enumerate(row) if valid]
        rows = slice(at, at + len(active))
        q = torch.unflatten(norm(x[rows], weight, bias, eps=EPS), 1, (-1, cache.shape[-1]))
        for i, (slot, valid) in enumerate(active):
            out[at + i] = attend(q[i], cache[slot], valid)
        at += len(active)
        note("step")
    return out


def valid_keys(q: Tensor, slot: Tensor, valid: int) -> Tensor:
    """Over the valid keys."""
    k, v = slot[:, :, :valid].unbind(0)
    return steps.step(q, k, v, None)


def whole_capacity(q: Tensor, slot: Tensor, valid: int) -> Tensor:
    """Over all that is allocated, masked where it is not filled."""
    k, v = slot.unbind(0)
    capacity = slot.shape[2]
    mask = None if valid == capacity else torch.where(torch.arange(capacity, device=q.device) < valid, 0.0, -math.inf)
    return steps.step(q, k, v, mask)
