"""Baseline: copy the used pages of each sequence together, then call the flash kernel of SDPA."""

from __future__ import annotations

import torch
from torch import Tensor

from ..attention import sdpa


def gather(cache: Tensor, pages: Tensor, length: int) -> Tensor:
    """(length, Hkv, D) of the given pages (used ones only), the tail of the last page cut off."""
    return cache.index_select(0, pages).flatten(0, 1)[:length]


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
    """Shapes and meaning as in :func:`kernels.paged.paged_attention`."""
    page_size = k_cache.shape[1]
    starts, sizes = cu_seqlens_q.tolist(), cache_seqlens.tolist()
    out = torch.zeros_like(q)
    for n, size in enumerate(sizes):
        begin, end = starts[n], starts[n + 1]
        if begin == end or size == 0:
            continue
        pages = block_table[n, : -(-size // page_size)].long()
        k, v = gather(k_cache, pages, size), gather(v_cache, pages, size)
        one = sdpa.flash(
            q[begin:end].transpose(0, 1)[None],
            k.transpose(0, 1)[None],
            v.transpose(0, 1)[None],
            causal=causal,
            window=window,
            softcap=softcap,
            scale=scale,
        )
        out[begin:end] = one[0].transpose(0, 1)
    return out
