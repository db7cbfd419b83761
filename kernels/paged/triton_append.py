"""Write new keys and values into a paged cache, one launch for a ragged batch."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from ..triton_support.launch import Launch
from ..triton_support.targets import facts_of
from ..triton_support.tiles import power_of_two


@triton.jit(do_not_specialize=["longest", "page_size", "stride_table"])  # type: ignore[untyped-decorator]
def append_kernel(  # type: ignore[no-untyped-def]
    K, V, KCache, VCache, Table, Lens, CuNew,
    stride_ks, stride_kh, stride_kd, stride_vs, stride_vh, stride_vd,
    stride_kcb, stride_kcs, stride_kch, stride_kcd, stride_vcb, stride_vcs, stride_vch, stride_vcd,
    stride_table, longest, page_size, k_inverse, v_inverse,
    HEADS: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BLOCK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """A program writes BLOCK numbers of one new token: (heads, head_dim) flat, K and V."""
    pid = tl.program_id(0)
    chunk = pid % CHUNKS
    token = pid // CHUNKS % longest
    b = pid // CHUNKS // longest
    begin = tl.load(CuNew + b)
    count = tl.load(CuNew + b + 1) - begin
    if token >= count:
        return
    key = tl.load(Lens + b) - count + token
    page = tl.load(Table + b.to(tl.int64) * stride_table + key // page_size).to(tl.int64)
    slot = (key % page_size).to(tl.int64)
    row = (begin + token).to(tl.int64)
    n = chunk * BLOCK + tl.arange(0, BLOCK)
    head, d = n // DK, n % DK
    value = tl.load(K + row * stride_ks + head * stride_kh + d * stride_kd, mask=n < HEADS * DK)
    at = page * stride_kcb + slot * stride_kcs + head * stride_kch + d * stride_kcd
    tl.store(KCache + at, (value.to(tl.float32) * k_inverse).to(KCache.dtype.element_ty), mask=n < HEADS * DK)
    head, d = n // DV, n % DV
    value = tl.load(V + row * stride_vs + head * stride_vh + d * stride_vd, mask=n < HEADS * DV)
    at = page * stride_vcb + slot * stride_vcs + head * stride_vch + d * stride_vcd
    tl.store(VCache + at, (value.to(tl.float32) * v_inverse).to(VCache.dtype.element_ty), mask=n < HEADS * DV)


def plan(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    block_table: Tensor,
    cache_seqlens: Tensor,
    cu_seqlens_new: Tensor,
    max_seqlen_new: int,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> Launch:
    """The launch of :func:`append`."""
    heads, head_k, head_v = k.shape[1], k.shape[2], v.shape[2]
    block = min(1024, power_of_two(heads * max(head_k, head_v)))
    chunks = -(-heads * max(head_k, head_v) // block)
    arguments: dict[str, Any] = {
        "K": k,
        "V": v,
        "KCache": k_cache,
        "VCache": v_cache,
        "Table": block_table,
        "Lens": cache_seqlens,
        "CuNew": cu_seqlens_new,
        **dict(zip(("stride_ks", "stride_kh", "stride_kd"), k.stride(), strict=True)),
        **dict(zip(("stride_vs", "stride_vh", "stride_vd"), v.stride(), strict=True)),
        **dict(zip(("stride_kcb", "stride_kcs", "stride_kch", "stride_kcd"), k_cache.stride(), strict=True)),
        **dict(zip(("stride_vcb", "stride_vcs", "stride_vch", "stride_vcd"), v_cache.stride(), strict=True)),
        "stride_table": block_table.stride(0),
        "longest": max_seqlen_new,
        "page_size": k_cache.shape[1],
        "k_inverse": 1.0 / k_scale,
        "v_inverse": 1.0 / v_scale,
        "HEADS": heads,
        "DK": head_k,
        "DV": head_v,
        "BLOCK": block,
        "CHUNKS": chunks,
    }
    grid = (cu_seqlens_new.shape[0] - 1) * max_seqlen_new * chunks
    return Launch(append_kernel, grid, arguments, {"num_warps": 4})


def append(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    block_table: Tensor,
    cache_seqlens: Tensor,
    cu_seqlens_new: Tensor,
    max_seqlen_new: int,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> None:
    """Write new keys and values at the end of their sequences, in place.

    Args:
        k, v: (total_new, Hkv, D*); sequences laid end to end.
        k_cache, v_cache: (num_blocks, page_size, Hkv, D*), of the dtype of k and v or an 8-bit float type.
        block_table: (B, max_blocks) int32; names a page for every new key already.
        cache_seqlens: (B,) int32; keys of each sequence, the new ones included.
        cu_seqlens_new: (B + 1,) int32; where each sequence's new keys begin. None is allowed.
        max_seqlen_new: largest number of new keys of a sequence.
        k_scale, v_scale: what is written is the value divided by these.
    """
    facts_of(k.device)
    if block_table.stride(1) != 1:
        block_table = block_table.contiguous()
    launch = plan(
        k,
        v,
        k_cache,
        v_cache,
        block_table=block_table,
        cache_seqlens=cache_seqlens.contiguous(),
        cu_seqlens_new=cu_seqlens_new.contiguous(),
        max_seqlen_new=max_seqlen_new,
        k_scale=k_scale,
        v_scale=v_scale,
    )
    launch.run()


__all__ = ["append", "append_kernel", "plan"]
