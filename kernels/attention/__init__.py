"""Attention over dense and over ragged sequences: the oracle, the adapters and the public entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    backend: str,
    causal: bool = False,
    causal_alignment: str = "bottom_right",
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Attention by the backend named, and by no other: (B, Hq, Sq, D) in the dtype of q.

    Args:
        q: (B, Hq, Sq, D).
        k, v: (B, Hkv, Skv, D); Hq is a multiple of Hkv.
        backend: a name of ``kernels.registry``, an entry point, or "package.module:function".
        causal: query i sees key j only where j <= i + offset.
        causal_alignment: "bottom_right" (offset Skv - Sq, the last query sees all) or "top_left" (offset 0).
        window: query i sees key j only where j > i + offset - window; None is unlimited.
        softcap: scores become softcap * tanh(score / softcap); None is off.
        scale: factor of the scores, 1 / sqrt(D) where None.
        mask: 2 or 4 dimensions that broadcast to (B, Hq, Sq, Skv); bool (True takes part) or added.

    A query that sees no key gives 0. Raises ``ValueError`` for arguments that do not fit together,
    ``UnknownBackend``, ``Unsupported`` for what the backend cannot do on this device, and ``Unavailable``
    where it cannot be loaded.
    """
    from ..checks import check_attention, dispatch

    problem = check_attention(q, k, v, causal_alignment, window, softcap, mask)
    problem |= {"causal": causal, "causal_alignment": causal_alignment, "window": window, "softcap": softcap}
    function = dispatch(backend, "attention", problem, str(q.device))
    out: Tensor = function(
        q,
        k,
        v,
        causal=causal,
        causal_alignment=causal_alignment,
        window=window,
        softcap=softcap,
        scale=scale,
        mask=mask,
    )
    return out


def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    backend: str,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> Tensor:
    """Attention of sequences laid end to end, each on its own: (total_q, Hq, D) in the dtype of q.

    Args:
        q: (total_q, Hq, D).
        k, v: (total_k, Hkv, D).
        backend: as in :func:`attention`.
        cu_seqlens_q, cu_seqlens_k: (B + 1,) int32 on the device of q; empty sequences are allowed.
        max_seqlen_q, max_seqlen_k: at least the largest lengths.
        causal: bottom-right within each sequence.
        window, softcap, scale: as in :func:`attention`.

    Raises as :func:`attention` does.
    """
    from ..checks import check_varlen, dispatch

    problem = check_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, window, softcap)
    problem |= {"causal": causal, "window": window, "softcap": softcap}
    function = dispatch(backend, "varlen_attention", problem, str(q.device))
    out: Tensor = function(
        q,
        k,
        v,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        causal=causal,
        window=window,
        softcap=softcap,
        scale=scale,
    )
    return out
