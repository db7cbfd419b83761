"""Baseline: copy the used pages of each sequence together, then call the flash kernel of SDPA."""

from __future__ import annotations

import torch
from torch import Tensor

from ..attention import sdpa
from .used import gather, sequences


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
    out = torch.zeros_like(q)
    for n, begin, end, size in sequences(cache_seqlens, cu_seqlens_q):
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
