"""Attention over a paged K/V cache by our Triton kernels: decode, chunked prefill, and batches that mix both."""

from __future__ import annotations

import math

from torch import Tensor

from ..triton_support import forward
from ..triton_support.forward import Layout, Rule
from ..triton_support.targets import facts_of
from ..triton_support.tiles import Config


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
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    config: Config | None = None,
    splits: int | None = None,
) -> Tensor:
    """Shapes and meaning as in :func:`kernels.paged.paged_attention`: (total_q, Hq, D).

    The caches may be float8, to be multiplied by ``k_scale`` and ``v_scale``. Lengths stay on the device: how many
    segments the keys are cut into follows from the width of the block table. ``config`` and ``splits`` replace the
    chosen ones.
    """
    page_size = k_cache.shape[1]
    table = block_table if block_table.stride(1) == 1 else block_table.contiguous()
    layout = Layout(
        cache_seqlens.shape[0],
        max_seqlen_q,
        block_table.shape[1] * page_size,
        cu_q=cu_seqlens_q.contiguous(),
        table=table,
        lens=cache_seqlens.contiguous(),
        page_size=page_size,
    )
    number = 1.0 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    rule = Rule(causal, True, window, softcap, number)
    plan = forward.plan(
        q,
        k_cache,
        v_cache,
        rule,
        layout,
        facts_of(q.device),
        config=config,
        splits=splits,
        k_scale=k_scale,
        v_scale=v_scale,
    )
    return plan.run()
