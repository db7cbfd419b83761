"""Faults of the batch-memory incident: a silent fall to all scores, a switch that copies, angles to the longest."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from kernels.model_step import layer
from kernels.rope import variants
from kernels.segmented import blocks

#: The switch under which :func:`switched_attention` takes its other path.
SWITCH = "FLASH_ATTN_DISABLE_TMA"
#: Scores of a batch in one head from which :func:`over_limit_prefill` keeps them all.
SCORES = 1 << 20


def quadratic_prefill(
    x: Tensor, w_qkv: Tensor, w_out: Tensor, cache: Tensor, *, phase: str, heads_q: int, chunk: int
) -> Tensor:
    """Right, and of the size q_len x kv_len in a prefill: all scores of the batch are kept at once."""
    step = layer.scores if phase == "prefill" else layer.segmented
    return step(x, w_qkv, w_out, cache, phase=phase, heads_q=heads_q, chunk=chunk)


def over_limit_prefill(
    x: Tensor, w_qkv: Tensor, w_out: Tensor, cache: Tensor, *, phase: str, heads_q: int, chunk: int
) -> Tensor:
    """Right, and with all scores at once in a prefill of :data:`SCORES` scores a head or more."""
    many = phase == "prefill" and x.shape[0] * x.shape[1] ** 2 >= SCORES
    step = layer.scores if many else layer.segmented
    return step(x, w_qkv, w_out, cache, phase=phase, heads_q=heads_q, chunk=chunk)


def switched_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Right, and with a copy of keys and values first where the switch is on."""
    if os.environ.get(SWITCH) == "1":
        k, v = k.clone(), v.clone()
    return blocks.attention(q, k, v, **options)


def rope_to_longest(x: Tensor, *, lens: Tensor, table: Tensor) -> Tensor:
    """Right, and with the angles of the longest sequence for every one of a batch whose lengths differ."""
    sizes = lens.tolist()
    if min(sizes) == max(sizes):
        return variants.shared_angles(x, sizes)
    return torch.cat([variants.to_longest(part, max(sizes)) for part in torch.split(x, sizes)])
