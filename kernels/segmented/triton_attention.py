"""Attention by our Triton kernels over dense and ragged sequences, forward and backward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..triton_support import backward, forward
from ..triton_support.forward import Layout, Rule
from ..triton_support.targets import facts_of
from ..triton_support.tiles import Config


@dataclass(frozen=True)
class Tuning:
    """Tile sizes and number of segments to use instead of the chosen ones."""

    forward: Config | None = None
    splits: int | None = None
    backward: tuple[Config, Config] | None = None


NO_TUNING = Tuning()


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
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    tuning: Tuning = NO_TUNING,
) -> Tensor:
    """Shapes and meaning as in :func:`kernels.attention.attention`: (B, Hq, Sq, D).

    Beyond that, v may have another head size than q and k, and k and v may be float8 (forward only), to be
    multiplied by ``k_scale`` and ``v_scale``. ``tuning`` replaces what was chosen.
    """
    if mask is not None:
        raise NotImplementedError("segmented_triton takes no mask")
    rule = Rule(causal, causal_alignment == "bottom_right", window, softcap, _scale(q, scale))
    return _run(q, k, v, rule, Layout(q.shape[0], q.shape[2], k.shape[2]), k_scale, v_scale, tuning)


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
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    tuning: Tuning = NO_TUNING,
) -> Tensor:
    """Shapes and meaning as in :func:`kernels.attention.varlen_attention`: (total_q, Hq, D).

    Lengths stay on the device. float8 and another head size of v as in :func:`attention`.
    """
    rule = Rule(causal, True, window, softcap, _scale(q, scale))
    layout = Layout(
        cu_seqlens_q.shape[0] - 1, max_seqlen_q, max_seqlen_k, cu_seqlens_q.contiguous(), cu_seqlens_k.contiguous()
    )
    return _run(q, k, v, rule, layout, k_scale, v_scale, tuning)


def _scale(q: Tensor, scale: float | None) -> float:
    return 1.0 / math.sqrt(q.shape[-1]) if scale is None else float(scale)


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rule: Rule,
    layout: Layout,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    tuning: Tuning = NO_TUNING,
) -> Tensor:
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        if k.dtype != q.dtype or v.dtype != q.dtype:
            raise NotImplementedError(f"segmented_triton has no gradient for {k.dtype} keys with {q.dtype} queries")
        out: Tensor = _Attention.apply(q, k, v, rule, layout, tuning)  # type: ignore[no-untyped-call]
        return out
    facts = facts_of(q.device)
    plan = forward.plan(
        q,
        k,
        v,
        rule,
        layout,
        facts,
        config=tuning.forward,
        splits=tuning.splits,
        k_scale=k_scale,
        v_scale=v_scale,
    )
    return plan.run()


class _Attention(torch.autograd.Function):
    """Keeps the inputs, the output and one float32 per (query, head)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, rule: Rule, layout: Layout, tuning: Tuning) -> Tensor:
        plan = forward.plan(
            q, k, v, rule, layout, facts_of(q.device), keep_lse=True, config=tuning.forward, splits=tuning.splits
        )
        out = plan.run()
        assert plan.lse is not None
        ctx.save_for_backward(q, k, v, out, plan.lse)
        ctx.rule, ctx.layout, ctx.tuning = rule, layout, tuning
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        plan = backward.plan(q, k, v, out, lse, grads[0], ctx.rule, ctx.layout, facts_of(q.device), ctx.tuning.backward)
        return (*plan.run(), None, None, None)
