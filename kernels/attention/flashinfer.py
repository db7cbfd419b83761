"""FlashInfer: ragged and paged prefill wrappers. CUDA only, forward only, bottom-right.

Its wrappers plan on the host before they run; both are part of a call here, since the lengths belong to the
call. The first call of a shape compiles.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..backend import Backend, Problem
from . import flash

if TYPE_CHECKING:
    from torch import Tensor

MODULE = "kernels.attention.flashinfer"
#: Bytes of the buffer that the wrappers keep partial results in.
WORKSPACE = 256 << 20


def probe(device: str) -> str:
    """Version of flashinfer; raises whatever its import raises."""
    from .devices import torch_version

    torch_version(device)
    import flashinfer

    return str(flashinfer.__version__)


@lru_cache(maxsize=4)
def _wrapper(kind: str, device: str) -> Any:
    import flashinfer
    import torch

    buffer = torch.empty(WORKSPACE, dtype=torch.uint8, device=device)
    return getattr(flashinfer, kind)(buffer, "NHD")


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
    wrapper = _wrapper("BatchPrefillWithRaggedKVCacheWrapper", str(q.device))
    wrapper.plan(
        cu_seqlens_q,
        cu_seqlens_k,
        q.shape[1],
        k.shape[1],
        q.shape[2],
        **_options(q, causal, window, softcap, scale),
    )
    out: Tensor = wrapper.run(q, k, v)
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
    import torch

    page_size = k_cache.shape[1]
    counts = (cache_seqlens + page_size - 1) // page_size
    starts = torch.nn.functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
    used = torch.arange(block_table.shape[1], device=q.device) < counts[:, None]
    wrapper = _wrapper("BatchPrefillWithPagedKVCacheWrapper", str(q.device))
    wrapper.plan(
        cu_seqlens_q,
        starts,
        block_table[used],
        (cache_seqlens - 1) % page_size + 1,
        q.shape[1],
        k_cache.shape[2],
        q.shape[2],
        page_size,
        **_options(q, causal, window, softcap, scale),
    )
    out: Tensor = wrapper.run(q, (k_cache, v_cache))
    return out


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
    """Shapes and meaning as in :func:`kernels.attention.attention`: sequences of one length, copied end to end."""
    import torch

    flash.refuse("flashinfer", q, k, causal, causal_alignment, window, mask)
    batch, heads, q_len, head_dim = q.shape
    kv_len = k.shape[2]
    starts = torch.arange(batch + 1, dtype=torch.int32, device=q.device)
    out = varlen_attention(
        q.transpose(1, 2).reshape(-1, heads, head_dim),
        k.transpose(1, 2).reshape(-1, k.shape[1], head_dim),
        v.transpose(1, 2).reshape(-1, k.shape[1], head_dim),
        cu_seqlens_q=starts * q_len,
        cu_seqlens_k=starts * kv_len,
        max_seqlen_q=q_len,
        max_seqlen_k=kv_len,
        causal=causal,
        window=window,
        softcap=softcap,
        scale=scale,
    )
    return out.view(batch, q_len, heads, head_dim).transpose(1, 2)


def _options(q: Tensor, causal: bool, window: int | None, softcap: float | None, scale: float | None) -> dict[str, Any]:
    return {
        "causal": causal,
        "window_left": flash.left(window),
        "logits_soft_cap": softcap,
        "sm_scale": 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale,
        "q_data_type": q.dtype,
        "kv_data_type": q.dtype,
    }


def _head_dim(problem: Problem) -> str | None:
    head_dim = problem.get("head_dim")
    return None if head_dim in (None, 64, 128, 256) else f"head_dim {head_dim} is not one of 64, 128, 256"


BACKENDS = (
    Backend(
        "flashinfer",
        flash.operations(MODULE),
        flash.support(directions=("fwd",), max_head_dim=None, head_dim_multiple=1, empty=False, also=_head_dim),
        "FlashInfer prefill wrappers, planning included",
        "pip install flashinfer-python; it compiles on first use (needs nvcc, ninja)",
        probe=f"{MODULE}:probe",
    ),
)
