"""PyTorch ``torch.nn.attention.varlen`` (FlashAttention over ragged sequences). CUDA only."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..backend import Backend, Capabilities, Support, Unavailable
from .flash import HALF, left

if TYPE_CHECKING:
    from torch import Tensor

MODULE = "kernels.attention.varlen"


def probe(device: str) -> str:
    """Version of torch; raises where varlen is not there or too old."""
    from .devices import torch_version

    version = torch_version(device)
    missing = {"scale", "window_size"} - _parameters()
    if missing:
        raise Unavailable(f"varlen_attn of torch {version} has no {', '.join(sorted(missing))}", "torch 2.11 or later")
    return version


@lru_cache(maxsize=1)
def _parameters() -> frozenset[str]:
    from torch.nn.attention.varlen import varlen_attn

    return frozenset(inspect.signature(varlen_attn).parameters)


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
) -> Tensor:
    """Shapes and meaning as in :func:`kernels.attention.varlen_attention`."""
    from torch.nn.attention.varlen import varlen_attn

    if softcap is not None:
        raise NotImplementedError("torch varlen has no softcap")
    options: dict[str, Any] = _grouped(q, k.shape[1])
    out: Tensor = varlen_attn(  # type: ignore[assignment]
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        scale=scale,
        window_size=(left(window), 0 if causal else -1),
        **options,
    )
    return out


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
    from torch.nn.attention.varlen import varlen_attn

    if softcap is not None:
        raise NotImplementedError("torch varlen has no softcap")
    if "block_table" not in _parameters():
        raise NotImplementedError("varlen_attn of this torch has no block_table; torch 2.13 has")
    longest = block_table.shape[1] * k_cache.shape[1]
    out: Tensor = varlen_attn(  # type: ignore[assignment]
        q,
        k_cache,
        v_cache,
        cu_seqlens_q,
        None,
        max_seqlen_q,
        longest,
        scale=scale,
        window_size=(left(window), 0 if causal else -1),
        seqused_k=cache_seqlens,
        block_table=block_table,
        **_grouped(q, k_cache.shape[2]),
    )
    return out


def _grouped(q: Tensor, heads_kv: int) -> dict[str, Any]:
    """Grouped queries want a flag in some versions of torch and none in others."""
    return {"enable_gqa": q.shape[1] != heads_kv} if "enable_gqa" in _parameters() else {}


BACKENDS = (
    Backend(
        "varlen",
        {"varlen_attention": f"{MODULE}:varlen_attention", "paged_attention": f"{MODULE}:paged_attention"},
        Capabilities({"cuda": Support(dtypes=HALF, max_head_dim=256, head_dim_multiple=8, window=True)}),
        "PyTorch varlen attention",
        "comes with a CUDA build of torch 2.11 or later; needs a CUDA device",
        probe=f"{MODULE}:probe",
        limits={
            "paged_attention": Capabilities(
                {
                    "cuda": Support(
                        dtypes=HALF,
                        directions=("fwd",),
                        max_head_dim=256,
                        head_dim_multiple=8,
                        window=True,
                        page_size_multiple=256,
                    )
                }
            )
        },
    ),
)
