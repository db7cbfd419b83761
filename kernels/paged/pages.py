"""Paged attention with a running softmax over chunks of pages.

Each chunk of used pages is read once, met by every block of queries that sees it, and merged:
m' = max(m, m_c); l' = l e^(m-m') + l_c; o' = o e^(m-m') + o_c. The workspace is O(chunk), whatever the length of
the cache. Pages that are not used, and the rest of the last page, are never part of any arithmetic: they
may hold NaN, and 0 * NaN is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .used import gather, sequences

#: Keys that are gathered at once (whole pages, at least one), and queries that meet them at once.
CHUNK = 512
BLOCK = 128


@dataclass
class _State:
    """Running maximum, sum and unnormalised output of (Hkv, G, q_len) queries, in float32 or wider."""

    top: Tensor
    total: Tensor
    out: Tensor


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    block_table: Tensor,
    cache_seqlens: Tensor,
    cu_seqlens_q: Tensor,
    max_seqlen_q: int,
    causal: bool = True,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> Tensor:
    """Shapes and meaning as in :func:`kernels.paged.paged_attention`. Lengths are read on the host."""
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    heads_kv = k_cache.shape[2]
    out = torch.zeros_like(q)
    for n, begin, end, size in sequences(cache_seqlens, cu_seqlens_q):
        rows = torch.unflatten((q[begin:end] * scale).transpose(0, 1), 0, (heads_kv, -1))
        one = _sequence(rows, k_cache, v_cache, block_table[n], size, causal, window, softcap)
        out[begin:end] = one.flatten(0, 1).transpose(0, 1)
    return out


def _sequence(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    table: Tensor,
    size: int,
    causal: bool,
    window: int | None,
    softcap: float | None,
) -> Tensor:
    """One sequence: q (Hkv, G, q_len, D), scaled -> the same shape."""
    q_len, page_size = q.shape[2], k_cache.shape[1]
    offset = size - q_len
    wide = torch.float32 if q.dtype in (torch.float16, torch.bfloat16) else q.dtype
    state = _State(
        torch.full(q.shape[:3], -math.inf, dtype=wide, device=q.device),
        torch.zeros(q.shape[:3], dtype=wide, device=q.device),
        torch.zeros(q.shape, dtype=wide, device=q.device),
    )
    step = max(1, CHUNK // page_size)
    first = 0 if window is None else max(0, offset - window + 1) // page_size
    for page in range(first, -(-size // page_size), step):
        low, high = page * page_size, min(size, (page + step) * page_size)
        pages = table[page : -(-high // page_size)].long()
        k, v = (gather(c, pages, high - low).transpose(0, 1) for c in (k_cache, v_cache))
        for i in range(0, q_len, BLOCK):
            j = min(i + BLOCK, q_len)
            if causal and low > j - 1 + offset:
                continue  # every key of the chunk is after every query of the block
            if window is not None and high - 1 <= i + offset - window:
                continue  # every key of the chunk has left the window
            _merge(state, q, k, v, i, j, low, offset, causal, window, softcap)
    total = torch.where(state.total == 0, torch.ones_like(state.total), state.total)
    return (state.out / total[..., None]).to(q.dtype)


def _merge(
    state: _State,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    i: int,
    j: int,
    low: int,
    offset: int,
    causal: bool,
    window: int | None,
    softcap: float | None,
) -> None:
    """Add keys low.. (k, v of (Hkv, L, D)) to queries [i, j)."""
    length, wide = k.shape[1], state.out.dtype
    flat = q[:, :, i:j].flatten(1, 2) @ k.transpose(-1, -2)
    scores = torch.unflatten(flat.to(wide), 1, (-1, j - i))
    if softcap is not None:
        scores = torch.tanh_(scores.div_(softcap)).mul_(softcap)
    # Chunks in the middle are seen whole and need no mask.
    edge = window is not None and low <= j - 1 + offset - window
    if edge or (causal and low + length - 1 > i + offset):
        position = torch.arange(i + offset, j + offset, device=q.device)[:, None]
        key = torch.arange(low, low + length, device=q.device)
        hidden = key > position if causal else torch.zeros(j - i, length, dtype=torch.bool, device=q.device)
        if window is not None:
            hidden = hidden | (key <= position - window)
        scores.masked_fill_(hidden, -math.inf)
    old = state.top[:, :, i:j]
    top = torch.maximum(old, scores.amax(dim=-1))
    # Where nothing was seen yet both are -inf, and their difference would be NaN.
    safe = torch.where(top == -math.inf, torch.zeros_like(top), top)
    weights = scores.sub_(safe[..., None]).exp_()
    decay = torch.exp(old - safe)
    part = torch.unflatten(weights.to(v.dtype).flatten(1, 2) @ v, 1, (-1, j - i))
    state.total[:, :, i:j] = state.total[:, :, i:j] * decay + weights.sum(dim=-1)
    state.out[:, :, i:j] = state.out[:, :, i:j] * decay[..., None] + part
    state.top[:, :, i:j] = top
