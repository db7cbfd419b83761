"""FlashAttention-4 (package ``flash-attn-4``, module ``flash_attn.cute``). Hopper and Blackwell."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from typing import TYPE_CHECKING, Any

from ..backend import Backend, Unavailable
from . import flash

if TYPE_CHECKING:
    from torch import Tensor

MODULE = "kernels.attention.flash_attn_4"


def probe(device: str) -> str:
    """Version of flash-attn-4; raises where it is not installed or the device is too old."""
    from .devices import compute_capability

    if compute_capability(device)[0] < 9:
        raise Unavailable("FlashAttention-4 needs compute capability 9.0 or later (Hopper, Blackwell)")
    from flash_attn.cute import flash_attn_func, flash_attn_varlen_func  # noqa: F401

    try:
        return package_version("flash-attn-4")
    except PackageNotFoundError:
        return "built from source"


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
    from flash_attn.cute import flash_attn_func

    flash.refuse("FlashAttention-4", q, k, causal, causal_alignment, window, mask)
    _refuse_head_dim(q)
    out = flash_attn_func(
        *flash.heads_last(q, k, v),
        softmax_scale=scale,
        **_rule(causal, window, softcap),
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
    from flash_attn.cute import flash_attn_varlen_func

    _refuse_head_dim(q)
    out = flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        softmax_scale=scale,
        **_rule(causal, window, softcap),
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
    from flash_attn.cute import flash_attn_varlen_func

    _refuse_head_dim(q)
    out = flash_attn_varlen_func(
        q,
        k_cache,
        v_cache,
        cu_seqlens_q=cu_seqlens_q,
        seqused_k=cache_seqlens,
        page_table=block_table,
        max_seqlen_q=max_seqlen_q,
        softmax_scale=scale,
        **_rule(causal, window, softcap),
    )
    return flash.output(out)


def _rule(causal: bool, window: int | None, softcap: float | None) -> dict[str, Any]:
    """None, not -1, is unlimited here, and a window is given with its right end instead of ``causal``."""
    left = None if window is None else window - 1
    right = 0 if causal and window is not None else None
    return {"causal": causal and window is None, "window_size": (left, right), "softcap": softcap or 0.0}


def _refuse_head_dim(q: Tensor) -> None:
    """Only Hopper has kernels between 128 and 256; what is declared does not depend on the machine."""
    import torch

    if q.shape[-1] > 128 and torch.cuda.get_device_capability(q.device)[0] != 9:
        raise NotImplementedError(f"FlashAttention-4 has head_dim {q.shape[-1]} on Hopper only")


BACKENDS = (
    Backend(
        "flash_attn_4",
        flash.operations(MODULE),
        flash.support(empty=False),
        "FlashAttention-4 (CuTe DSL)",
        'pip install "flash-attn-4>=4.0.0b1" (a prerelease; where it is alone, xformers cannot be imported)',
        probe=f"{MODULE}:probe",
        limits={
            "varlen_attention": flash.support(),
            "paged_attention": flash.support(directions=("fwd",), page_size_multiple=128),
        },
    ),
)
