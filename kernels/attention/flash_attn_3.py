"""FlashAttention-3 (module ``flash_attn_interface``, built from the Hopper folder of its repository)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..backend import Backend, Unavailable
from . import flash

if TYPE_CHECKING:
    from torch import Tensor

MODULE = "kernels.attention.flash_attn_3"


def probe(device: str) -> str:
    """Version of FlashAttention-3; raises where it is not installed or the device is not a Hopper."""
    from .devices import compute_capability

    if compute_capability(device)[0] != 9:
        raise Unavailable("FlashAttention-3 needs compute capability 9.0 (Hopper)")
    import flash_attn_interface
    from flash_attn_interface import (  # noqa: F401
        flash_attn_func,
        flash_attn_varlen_func,
        flash_attn_with_kvcache,
    )

    return str(getattr(flash_attn_interface, "__version__", "3"))


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
) -> Tensor:
    """Shapes and meaning as in :func:`kernels.attention.attention`."""
    from flash_attn_interface import flash_attn_func

    flash.refuse("FlashAttention-3", q, k, causal, causal_alignment, window, mask)
    out = flash_attn_func(
        *flash.heads_last(q, k, v),
        **flash.rule(scale, causal, window, softcap),
    )
    return flash.output(out).transpose(1, 2)


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
    from flash_attn_interface import flash_attn_varlen_func

    out = flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        **flash.rule(scale, causal, window, softcap),
    )
    return flash.output(out)


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
    from flash_attn_interface import flash_attn_with_kvcache

    out = flash_attn_with_kvcache(
        q,
        k_cache,
        v_cache,
        cache_seqlens=cache_seqlens,
        page_table=block_table,
        cu_seqlens_q=cu_seqlens_q,
        max_seqlen_q=max_seqlen_q,
        **flash.rule(scale, causal, window, softcap),
    )
    return flash.output(out)


BACKENDS = (
    Backend(
        "flash_attn_3",
        flash.operations(MODULE),
        flash.support(empty=False),
        "FlashAttention-3",
        "build the folder hopper/ of github.com/Dao-AILab/flash-attention (needs nvcc 12.3 and a Hopper GPU)",
        probe=f"{MODULE}:probe",
        limits={
            "varlen_attention": flash.support(),
            "paged_attention": flash.support(directions=("fwd",)),
        },
    ),
)
