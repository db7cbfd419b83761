"""Attention over a paged K/V cache: blocks of ``page_size`` keys anywhere in a pool, found by a block table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backend import Backend, Capabilities, Support

if TYPE_CHECKING:
    from torch import Tensor

_OURS = Support(directions=("fwd",), window=True, softcap=True)
_GATHER = Support(directions=("fwd",), window=True)

BACKENDS = (
    Backend(
        "paged",
        {"paged_attention": "kernels.paged.pages:paged_attention"},
        Capabilities({"cpu": _OURS, "cuda": _OURS}),
        "ours: used pages in chunks with a running softmax, any page size, ragged prefill and decode",
        probe="kernels.attention.sdpa:probe",
    ),
    Backend(
        "paged_gather",
        {"paged_attention": "kernels.paged.gather:paged_attention"},
        Capabilities(
            {"cpu": _GATHER, "cuda": Support(directions=("fwd",), dtypes=("float16", "bfloat16"), max_head_dim=256)}
        ),
        "baseline: gathers the used pages of each sequence, then the flash kernel of SDPA",
        probe="kernels.attention.sdpa:probe",
    ),
)


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    backend: str,
    block_table: Tensor,
    cache_seqlens: Tensor,
    cu_seqlens_q: Tensor,
    max_seqlen_q: int,
    causal: bool = True,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> Tensor:
    """Attention of ragged queries over a paged cache: (total_q, Hq, D).

    Args:
        q: (total_q, Hq, D); sequences laid end to end, prefill and decode mixed as they come.
        k_cache, v_cache: (num_blocks, page_size, Hkv, D); the new keys are in it already.
        backend: name of a backend; never replaced by another.
        block_table: (B, max_blocks) int32; entries beyond the used pages are never read.
        cache_seqlens: (B,) int32; keys of each sequence, the new ones included.
        cu_seqlens_q: (B + 1,) int32; where each sequence's queries begin.
        max_seqlen_q: largest number of queries of a sequence.
        causal: bottom-right: the last query sees every key.
        window, softcap, scale: as in :func:`kernels.attention.attention`.

    Raises ``ValueError`` for inputs that do not fit together, ``Unsupported`` for what the backend cannot
    do, ``Unavailable`` where it cannot be loaded.
    """
    from ..checks import check_paged, dispatch

    problem: dict[str, Any] = check_paged(
        q, k_cache, v_cache, block_table, cache_seqlens, cu_seqlens_q, max_seqlen_q, window, softcap
    )
    problem |= {"causal": causal, "window": window, "softcap": softcap}
    function = dispatch(backend, "paged_attention", problem, str(q.device))
    out: Tensor = function(
        q,
        k_cache,
        v_cache,
        block_table=block_table,
        cache_seqlens=cache_seqlens,
        cu_seqlens_q=cu_seqlens_q,
        max_seqlen_q=max_seqlen_q,
        causal=causal,
        window=window,
        softcap=softcap,
        scale=scale,
    )
    return out
