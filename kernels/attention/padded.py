"""Baseline for ragged sequences: pad them to the longest, mask, and call one dense SDPA kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..backend import Backend, Capabilities, Support

if TYPE_CHECKING:
    from torch import Tensor


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
    """Shapes and meaning as in :func:`kernels.attention.varlen_attention`.

    Uses the flash kernel on a CPU and the memory-efficient one on CUDA, where K/V heads are copied for
    grouped queries, since that kernel has none.
    """
    import torch

    from . import sdpa

    q_lens, k_lens = cu_seqlens_q.diff(), cu_seqlens_k.diff()
    query = torch.arange(max_seqlen_q, device=q.device)
    key = torch.arange(max_seqlen_k, device=q.device)
    real_q, real_k = query < q_lens[:, None], key < k_lens[:, None]
    keep = real_k[:, None, :].expand(-1, max_seqlen_q, -1)
    position = (query + (k_lens - q_lens)[:, None])[:, :, None]
    if causal:
        keep = keep & (key <= position)
    if window is not None:
        keep = keep & (key > position - window)
    blind = ~keep.any(dim=-1, keepdim=True)
    # Rows that see nothing are undefined in some kernels: they look at the first key, and are cleared below.
    keep = keep | (blind & (key == 0))

    group = q.shape[1] // k.shape[1] if q.is_cuda else 1
    kernel = sdpa.efficient if q.is_cuda else sdpa.flash
    dense = kernel(
        _pad(q, real_q),
        _pad(k, real_k).repeat_interleave(group, dim=1),
        _pad(v, real_k).repeat_interleave(group, dim=1),
        softcap=softcap,
        scale=scale,
        mask=keep[:, None],
    )
    dense = dense.transpose(1, 2).masked_fill(blind[..., None], 0.0)
    return dense[real_q]


def _pad(x: Tensor, real: Tensor) -> Tensor:
    """(total, H, D) -> (B, H, S, D) with zeros where ``real`` (B, S) is False."""
    out = x.new_zeros((*real.shape, *x.shape[1:]))
    out[real] = x
    return out.transpose(1, 2)


BACKENDS = (
    Backend(
        "sdpa_padded",
        {"varlen_attention": "kernels.attention.padded:varlen_attention"},
        Capabilities({"cpu": Support(window=True), "cuda": Support(window=True, head_dim_multiple=8)}),
        "baseline: ragged sequences padded and masked, then one dense SDPA kernel",
        probe="kernels.attention.sdpa:probe",
    ),
)
