"""A decode step that goes wrong past the last whole block of 128 keys.

Modelled on the report of a flash-attention release whose single-query path skipped part of the softmax normalisation
where kv_len % 128 != 0. With more queries, at whole blocks, and with options that the decode path lacks, the sound
implementation runs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kernels.segmented import blocks

BLOCK = 128
#: Keys that the path for odd lengths takes at a time.
STEP = 16


def slow(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Right, and slow at the boundary: shapes and options as in :func:`kernels.attention.attention`."""
    return _decode(q, k, v, options) if _at_boundary(q, k, options) else blocks.attention(q, k, v, **options)


def wrong(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Wrong at the boundary: the keys after the last whole block weigh in, and are not normalised for."""
    if not _at_boundary(q, k, options):
        return blocks.attention(q, k, v, **options)
    return _decode(q, k, v, options, forget=True)


def _at_boundary(q: Tensor, k: Tensor, options: dict[str, Any]) -> bool:
    if q.shape[2] != 1 or k.shape[2] % BLOCK == 0:
        return False
    if any(options.get(name) is not None for name in ("mask", "window", "softcap")):
        return False
    return not (options.get("causal") and options.get("causal_alignment", "bottom_right") != "bottom_right")


def _decode(q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any], *, forget: bool = False) -> Tensor:
    """Online softmax, STEP keys at a time; q (B, Hq, 1, D) against k, v (B, Hkv, Skv, D)."""
    scale = options.get("scale") or 1.0 / math.sqrt(q.shape[-1])
    rows = torch.unflatten(q, 1, (k.shape[1], -1)).squeeze(3).float() * scale
    top = torch.full(rows.shape[:3], -math.inf, device=q.device)
    total = torch.zeros_like(top)
    out = torch.zeros_like(rows)
    whole = k.shape[2] // BLOCK * BLOCK
    for at in range(0, k.shape[2], STEP):
        keys, values = k[:, :, at : at + STEP].float(), v[:, :, at : at + STEP].float()
        scores = rows @ keys.transpose(-1, -2)
        now = torch.maximum(top, scores.amax(-1))
        keep, weights = torch.exp(top - now), torch.exp(scores - now[..., None])
        total = total * keep
        if not (forget and at >= whole):
            total = total + weights.sum(-1)
        out, top = out * keep[..., None] + weights @ values, now
    return (out / total[..., None]).to(q.dtype).reshape(q.shape)
