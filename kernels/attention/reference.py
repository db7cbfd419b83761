"""Readable oracle of attention in float64 (or any dtype), on any device. Slow paths are fine, wrong ones not.

Query blocks keep the scores at ``block x kv_len``, and keys that no query of the block can see are skipped.
It is differentiable, so it serves the backward pass too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: Elements of the score matrix held at once.
SCORE_BUDGET = 1 << 21


def visible(
    q_from: int, q_to: int, q_len: int, kv_len: int, causal: bool, alignment: str, window: int | None
) -> tuple[int, int]:
    """Half-open range of keys that queries [q_from, q_to) may see between them."""
    offset = kv_len - q_len if alignment == "bottom_right" else 0
    high = min(kv_len, max(0, q_to + offset)) if causal else kv_len
    low = 0 if window is None else min(high, max(0, q_from + offset - window + 1))
    return low, high


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    causal_alignment: str = "bottom_right",
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    mask: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Attention, computed and returned in ``dtype``: (B, Hq, Sq, Dv).

    Args:
        q: (B, Hq, Sq, D).
        k: (B, Hkv, Skv, D) and v: (B, Hkv, Skv, Dv), of any floating dtype; Hq is a multiple of Hkv, query head h uses
            K/V head h // (Hq / Hkv).
        causal: query i sees key j only where j <= i + offset; offset is Skv - Sq ("bottom_right") or 0
            ("top_left").
        window: query i sees key j only where j > i + offset - window; with ``causal`` that is ``window``
            keys, itself included.
        softcap: scores become softcap * tanh(score / softcap) before masks.
        scale: factor of the scores; 1 / sqrt(D) where None.
        mask: broadcasts to (B, Hq, Sq, Skv); True takes part (boolean), or is added to the scores.

    A query that sees no key gives 0.
    """
    if causal_alignment not in ("bottom_right", "top_left"):
        raise ValueError(f"causal_alignment is bottom_right or top_left, not {causal_alignment!r}")
    batch, heads_q, q_len, head_dim = q.shape
    heads_kv, kv_len = k.shape[1], k.shape[2]
    scale = 1.0 / math.sqrt(head_dim) if scale is None else scale
    q = q.to(dtype) * scale
    k = k.to(dtype).repeat_interleave(heads_q // heads_kv, dim=1)
    v = v.to(dtype).repeat_interleave(heads_q // heads_kv, dim=1)
    if mask is not None:
        mask = mask.expand(batch, heads_q, q_len, kv_len)

    block = max(16, SCORE_BUDGET // max(1, batch * heads_q * kv_len))
    offset = kv_len - q_len if causal_alignment == "bottom_right" else 0
    out = []
    for i in range(0, max(1, q_len), block):  # once without queries too, for the sake of autograd
        j = min(i + block, q_len)
        low, high = visible(i, j, q_len, kv_len, causal, causal_alignment, window)
        scores = q[:, :, i:j] @ k[:, :, low:high].transpose(-1, -2)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        position = torch.arange(i, j, device=q.device)[:, None] + offset
        key = torch.arange(low, high, device=q.device)[None, :]
        keep = torch.ones(j - i, high - low, dtype=torch.bool, device=q.device)
        if causal:
            keep &= key <= position
        if window is not None:
            keep &= key > position - window
        if mask is not None and mask.dtype == torch.bool:
            keep = keep & mask[:, :, i:j, low:high]
        elif mask is not None:
            scores = scores + mask[:, :, i:j, low:high].to(dtype)
        scores = scores.masked_fill(~keep, -math.inf)
        out.append(_softmax(scores) @ v[:, :, low:high])
    return torch.cat(out, dim=2)


def _softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension; a row of nothing but -inf, or of no keys at all, becomes 0."""
    if scores.shape[-1] == 0:
        return scores
    top = scores.detach().amax(dim=-1, keepdim=True)
    weights = torch.exp(scores - torch.where(top == -math.inf, torch.zeros_like(top), top))
    total = weights.sum(dim=-1, keepdim=True)
    return weights / torch.where(total == 0, torch.ones_like(total), total)


def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Attention of sequences laid end to end, each on its own: (total_q, Hq, Dv) in ``dtype``.

    Args:
        q: (total_q, Hq, D).
        k, v: (total_k, Hkv, D), (total_k, Hkv, Dv).
        cu_seqlens_q, cu_seqlens_k: (B + 1,) int32, where each sequence begins; empty ones are allowed.
        max_seqlen_q, max_seqlen_k: largest lengths; not needed here.

    ``causal`` is bottom-right within each sequence; the rest as in :func:`attention`.
    """
    starts_q, starts_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    out = []
    for i in range(len(starts_q) - 1):
        rows, keys = slice(starts_q[i], starts_q[i + 1]), slice(starts_k[i], starts_k[i + 1])
        one = attention(
            q[rows].transpose(0, 1)[None],
            k[keys].transpose(0, 1)[None],
            v[keys].transpose(0, 1)[None],
            causal=causal,
            window=window,
            softcap=softcap,
            scale=scale,
            dtype=dtype,
        )
        out.append(one[0].transpose(0, 1))
    return torch.cat(out) if out else q.new_zeros((*q.shape[:-1], v.shape[-1]), dtype=dtype)
