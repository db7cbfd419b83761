"""FlashAttention-2 (package ``flash-attn``). CUDA only; causal masks are bottom-right since 2.1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..backend import Backend, Unavailable
from . import flash

if TYPE_CHECKING:
    from torch import Tensor

MODULE = "kernels.attention.flash_attn"


def probe(device: str) -> str:
    """Version of flash-attn; raises where it is not installed, too old, or the device is not there."""
    from .devices import compute_capability

    if compute_capability(device) < (8, 0):
        raise Unavailable("FlashAttention-2 needs compute capability 8.0 or later")
    import flash_attn

    version = str(flash_attn.__version__)
    if tuple(int(n) for n in version.split(".")[:2]) < (2, 6):
        raise Unavailable(f"flash-attn {version} is too old: softcap came with 2.6")
    from flash_attn import flash_attn_func, flash_attn_varlen_func  # noqa: F401

    return version


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
    """Shapes and meaning as in :func:`kernels.attention.attention`; the library wants (B, S, H, D) views."""
    from flash_attn import flash_attn_func

    flash.refuse("flash-attn", q, k, causal, causal_alignment, window, mask)
    out: Tensor = flash_attn_func(
        *flash.heads_last(q, k, v),
        **flash.rule(scale, causal, window, softcap),
    )
    return out.transpose(1, 2)


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
    from flash_attn import flash_attn_varlen_func

    out: Tensor = flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        **flash.rule(scale, causal, window, softcap),
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
    from flash_attn import flash_attn_varlen_func
    from torch.nn.functional import pad

    # With a block table the library takes the keys of each sequence from the differences of this.
    cu_seqlens_k = pad(cache_seqlens.cumsum(0, dtype=cu_seqlens_q.dtype), (1, 0))
    out: Tensor = flash_attn_varlen_func(
        q,
        k_cache,
        v_cache,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        block_table.shape[1] * k_cache.shape[1],
        **flash.rule(scale, causal, window, softcap),
        block_table=block_table,
    )
    return out


BACKENDS = (
    Backend(
        "flash_attn",
        flash.operations(MODULE),
        flash.support(head_dim_multiple=1, empty=False),
        "FlashAttention-2",
        "pip install flash-attn --no-build-isolation (no wheel: needs nvcc and torch installed first; sm80+)",
        probe=f"{MODULE}:probe",
        limits={
            "varlen_attention": flash.support(head_dim_multiple=1),
            "paged_attention": flash.support(directions=("fwd",), page_size_multiple=256),
        },
    ),
)
