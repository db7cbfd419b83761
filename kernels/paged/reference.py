"""Readable oracle of paged attention: one key at a time out of the cache, then the attention oracle."""

from __future__ import annotations

import torch
from torch import Tensor

from ..attention.reference import attention


def used_keys(cache: Tensor, table: list[int], length: int) -> Tensor:
    """(length, Hkv, D): key n is row n % page_size of page table[n // page_size]. Nothing else is read."""
    page_size = cache.shape[1]
    if length == 0:
        return cache.new_zeros((0, *cache.shape[2:]))
    keys = torch.arange(length, device=cache.device)
    pages = torch.tensor(table[: -(-length // page_size)], dtype=torch.long, device=cache.device)
    return cache[pages[keys // page_size], keys % page_size]


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
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """As :func:`kernels.paged.paged_attention`, computed and returned in ``dtype``: (total_q, Hq, Dv)."""
    starts, sizes, tables = cu_seqlens_q.tolist(), cache_seqlens.tolist(), block_table.tolist()
    out = []
    for n, size in enumerate(sizes):
        k, v = (used_keys(cache, tables[n], size) for cache in (k_cache, v_cache))
        rows = q[starts[n] : starts[n + 1]]
        one = attention(
            rows.transpose(0, 1)[None],
            k.transpose(0, 1)[None],
            v.transpose(0, 1)[None],
            causal=causal,
            window=window,
            softcap=softcap,
            scale=scale,
            dtype=dtype,
        )
        out.append(one[0].transpose(0, 1))
    return torch.cat(out) if out else q.new_zeros((*q.shape[:-1], v_cache.shape[-1]), dtype=dtype)
