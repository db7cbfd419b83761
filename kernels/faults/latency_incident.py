"""Faults of the latency incident: a cache walked to its capacity, layer norm in half precision, stale maximum, a slow
path for unaligned rows. Each has the signature of its operation."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kernels.gemm import products
from kernels.kv_cache import steps
from kernels.layer_norm import variants
from kernels.paged import pages
from kernels.segmented import blocks as segmented
from kernels.softmax import blocks

#: Elements of k that the path for unaligned rows takes at a time.
STRIP = 2
#: Queries of a tile in the slow path past a whole tile.
NARROW = 4
#: Keys that are laid out anew at a time.
KEYS = 2

narrow_layer_norm = variants.narrow_sums
narrow_eps_layer_norm = variants.narrow_eps
stale_softmax = blocks.against_stale


def whole_capacity(q: Tensor, cache: Tensor, *, kv_lens: Tensor) -> Tensor:
    """Right, and slow where a cache is not full: the step walks all that is allocated, under a mask."""
    out, capacity = torch.empty_like(q), cache.shape[4]
    for b, valid in enumerate(kv_lens.tolist()):
        mask = None
        if valid < capacity:
            mask = torch.where(torch.arange(capacity, device=q.device) < valid, 0.0, -math.inf)
        for layer in range(q.shape[1]):
            k, v = cache[b, layer, :, :, :capacity].unbind(0)
            out[b, layer] = steps.step(q[b, layer], k, v, mask)
    return out


def unaligned_gemm(a: Tensor, b: Tensor) -> Tensor:
    """Right, and slow where a's rows are no multiple of 32 elements apart: a few elements of k at a time."""
    if a.stride(0) % products.ALIGNED == 0:
        return products.native(a, b)
    out = torch.zeros((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    for at in range(0, a.shape[1], STRIP):
        out.addmm_(a[:, at : at + STRIP], b[at : at + STRIP])
    return out


def prefill_sawtooth(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Right, and slow for one query past a whole tile of 128 at head_dim 128: all tiles are cut down to 4 queries."""
    length = q.shape[2]
    plain = options.get("causal") and all(options.get(n) is None for n in ("mask", "window", "softcap"))
    if not (plain and length == k.shape[2] and length > 128 and length % 128 == 1 and q.shape[3] == 128):
        return segmented.attention(q, k, v, **options)
    out = torch.empty_like(q)
    for at in range(0, length, NARROW):
        end = min(at + NARROW, length)
        out[:, :, at:end] = segmented.attention(q[:, :, at:end], k[:, :, :end], v[:, :, :end], **options)
    return out


def small_pages(q: Tensor, k_cache: Tensor, v_cache: Tensor, **options: Any) -> Tensor:
    """Right, and slow where pages are smaller than 64 keys: the cache is laid out anew, two keys at a time, before
    every step."""
    page_size = k_cache.shape[1]
    if page_size >= 64:
        return pages.paged_attention(q, k_cache, v_cache, **options)
    table = options.pop("block_table")
    used = [row[: -(-n // page_size)] for row, n in zip(table.tolist(), options["cache_seqlens"].tolist(), strict=True)]
    copies = []
    for cache in (k_cache, v_cache):
        parts = [part for row in used for p in row for part in torch.split(cache[p], KEYS)]
        copies.append(torch.unflatten(torch.cat(parts), 0, (-1, page_size)))
    fresh, at = torch.zeros_like(table), 0
    for n, row in enumerate(used):
        fresh[n, : len(row)] = torch.arange(at, at + len(row), dtype=table.dtype)
        at += len(row)
    return pages.paged_attention(q, *copies, block_table=fresh, **options)
