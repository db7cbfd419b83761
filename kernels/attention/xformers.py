"""xformers ``memory_efficient_attention``. CUDA only; grouped queries in the forward pass only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backend import Backend, Capabilities, Problem, Support

if TYPE_CHECKING:
    from torch import Tensor

MODULE = "kernels.attention.xformers"


def probe(device: str) -> str:
    """Version of xformers; raises whatever its import raises."""
    from .devices import torch_version

    torch_version(device)
    import xformers
    import xformers.ops
    from xformers.ops.fmha import attn_bias  # noqa: F401

    return str(xformers.__version__)


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
    from xformers.ops.fmha import attn_bias

    if softcap is not None or mask is not None:
        raise NotImplementedError("xformers: no softcap and no mask here")
    if window is not None and not causal:
        raise NotImplementedError("xformers: sliding window only with causal")
    bias: Any = None
    if causal and causal_alignment == "top_left" and q.shape[2] != k.shape[2]:
        if window is not None:
            raise NotImplementedError("xformers: sliding window aligns bottom-right")
        bias = attn_bias.LowerTriangularMask()
    elif causal:
        bias = attn_bias.LowerTriangularFromBottomRightMask()
        bias = bias if window is None else bias.make_local_attention(window)
    out = _call(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), bias, scale)
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
    """Shapes and meaning as in :func:`kernels.attention.varlen_attention`. Lengths are read on the host."""
    from xformers.ops.fmha import attn_bias

    if softcap is not None:
        raise NotImplementedError("xformers: no softcap")
    if window is not None and not causal:
        raise NotImplementedError("xformers: sliding window only with causal")
    kind = attn_bias.BlockDiagonalCausalFromBottomRightMask if causal else attn_bias.BlockDiagonalMask
    bias = kind.from_seqlens(cu_seqlens_q.diff().tolist(), cu_seqlens_k.diff().tolist(), device=q.device)
    if window is not None:
        bias = bias.make_local_attention_from_bottomright(window)
    return _call(q[None], k[None], v[None], bias, scale)[0]


def _call(q: Tensor, k: Tensor, v: Tensor, bias: Any, scale: float | None) -> Tensor:
    """(B, S, H, D), or (B, S, Hkv, G, D) with K/V expanded for grouped queries."""
    from xformers.ops import memory_efficient_attention

    heads_q, heads_kv = q.shape[2], k.shape[2]
    if heads_q == heads_kv:
        out: Tensor = memory_efficient_attention(q, k, v, attn_bias=bias, scale=scale)
        return out
    group = heads_q // heads_kv
    grouped: Tensor = memory_efficient_attention(
        q.reshape(q.shape[0], q.shape[1], heads_kv, group, q.shape[3]),
        k[:, :, :, None].expand(-1, -1, -1, group, -1),
        v[:, :, :, None].expand(-1, -1, -1, group, -1),
        attn_bias=bias,
        scale=scale,
    )
    return grouped.flatten(2, 3)


def _also(p: Problem) -> str | None:
    if p.get("window") is not None and not p.get("causal"):
        return "sliding window only with causal"
    if p.get("window") is not None and p.get("causal_alignment") == "top_left" and p.get("q_len") != p.get("kv_len"):
        return "sliding window aligns bottom-right"
    if p.get("direction") == "bwd" and p.get("heads_q") != p.get("heads_kv"):
        return "grouped queries in the forward pass only"
    return None


BACKENDS = (
    Backend(
        "xformers",
        {"attention": f"{MODULE}:attention", "varlen_attention": f"{MODULE}:varlen_attention"},
        Capabilities(
            {
                "cuda": Support(
                    head_dim_multiple=8,
                    max_head_dim=256,
                    window=True,
                    masked_rows=False,
                    empty=False,
                    also=_also,
                )
            }
        ),
        "xformers memory-efficient attention",
        "pip install xformers, of the release built for the installed torch; not beside flash-attn-4 alone",
        probe=f"{MODULE}:probe",
    ),
)
