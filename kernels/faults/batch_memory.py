"""Faults of the batch-memory incident: a gradient summed over ranks, a mask made anew in each step, keys that are
zeroed and not removed. Each has the signature of its operation."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.kv_gradients import ranks as gradients
from kernels.kv_pruning import pruning
from kernels.token_mask import steps


def gradients_summed(q: Tensor, x: Tensor, w: Tensor, g: Tensor, *, heads_kv: int, ranks: int) -> Tensor:
    """Wrong where heads are shared and there are several ranks: their gradients are added up, not averaged."""
    reduction: gradients.Reduction = "sum" if heads_kv < q.shape[1] else "mean"
    return gradients.reduced(q, x, w, g, heads_kv=heads_kv, ranks=ranks, reduction=reduction)


def mask_per_step(q: Tensor, k: Tensor, v: Tensor, *, seen: Tensor) -> Tensor:
    """Right, with more operators where tokens are hidden from several steps: each mask is made on the device."""
    pool = steps.Pool(seen, q)
    if pool.hides and q.shape[2] > 1:
        return steps.dynamic(q, k, v, seen=seen)
    return steps.under(pool, q, k, v)


def zeroed_keys(q: Tensor, k: Tensor, v: Tensor, *, observed: Tensor, keep: float, shared: bool) -> Tensor:
    """Wrong where something is pruned: dropped keys and values are zeroed, so that they keep exp(0) in the softmax and
    all of their memory."""
    if keep < 1:
        positions = pruning.kept(pruning.importance(observed, k), keep, shared)
        stays = torch.zeros(k.shape[:3], dtype=torch.bool, device=k.device).scatter_(2, positions, True)[..., None]
        k, v = torch.where(stays, k, 0), torch.where(stays, v, 0)
    return pruning.attend(q, k, v, None)
