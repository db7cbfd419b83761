"""From tensors to launches of the backward kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import tiles
from .backward_kernel import backward_kv, backward_prepare, backward_q
from .choices import choose
from .forward import LOG2E, Layout, Rule, far, strides
from .launch import Launch
from .targets import Facts
from .tiles import Config


@dataclass(frozen=True)
class Backward:
    """Launches in order, and the gradients that they write, shaped as q, k and v and contiguous."""

    launches: tuple[Launch, ...]
    grad_q: Tensor
    grad_k: Tensor
    grad_v: Tensor

    def run(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queue all launches."""
        for launch in self.launches:
            launch.run()
        return self.grad_q, self.grad_k, self.grad_v


def plan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    grad: Tensor,
    rule: Rule,
    layout: Layout,
    facts: Facts,
    configs: tuple[Config, Config] | None = None,
) -> Backward:
    """Launches that compute the gradients of q, k and v, dense or ragged; paged layouts have none.

    ``out`` and ``lse`` are those of the forward pass, ``grad`` the gradient of ``out``, of its shape. ``configs``
    replace the chosen tile sizes of the kernels for keys and for queries.
    """
    heads_q, heads_kv = q.shape[1], k.shape[1]
    group = heads_q // heads_kv
    head_k, head_v = k.shape[-1], v.shape[-1]
    ragged = layout.cu_q is not None
    grad_q, grad_k, grad_v = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    top, delta = torch.empty((2, *lse.shape), dtype=torch.float32, device=q.device)
    if configs is None:
        kind = "ragged" if ragged else "dense"
        shape = f"{kind} {str(q.dtype)[6:]} dk{head_k} dv{head_v} group{group} causal{int(rule.causal)}"
        configs = (
            choose(facts.name, f"backward_kv {shape}", _shipped(facts, head_k, head_v, "backward_kv")),
            choose(facts.name, f"backward_q {shape}", _shipped(facts, head_k, head_v, "backward_q")),
        )
    by_key, by_query = configs
    key_tiles = -(-layout.kv_len // by_key.block_n)
    row_tiles = -(-layout.q_len * group // by_query.block_m)
    scale, cap = rule.scale * LOG2E, 0.0
    if rule.softcap is not None:
        scale, cap = rule.scale / rule.softcap, rule.softcap * LOG2E
    k0, k1 = tiles.halves(head_k)
    v0, v1 = tiles.halves(head_v)
    common: dict[str, Any] = {
        "Q": q,
        "K": k,
        "V": v,
        "Grad": grad,
        "Top": top,
        "Delta": delta,
        "CuQ": layout.cu_q,
        "CuK": layout.cu_k,
        **strides("q", q, ragged, 0),
        **strides("k", k, ragged, 0),
        **strides("v", v, ragged, 0),
        **strides("g", grad, ragged, 0),
        "heads_kv": heads_kv,
        "q_len": layout.q_len,
        "kv_len": layout.kv_len,
        "window": rule.window or 0,
        "scale": scale,
        "cap": cap,
        "grad_scale": rule.scale,
        "GROUP": group,
        "DK": head_k,
        "DK0": k0,
        "DK1": k1,
        "DV": head_v,
        "DV0": v0,
        "DV1": v1,
        "CAUSAL": rule.causal,
        "BOTTOM_RIGHT": rule.bottom_right,
        "WINDOW": rule.window is not None,
        "SOFTCAP": rule.softcap is not None,
    }
    for_keys = {
        **common,
        "GradK": grad_k,
        "GradV": grad_v,
        **strides("x", grad_k, ragged, 0),
        **strides("y", grad_v, ragged, 0),
        "tiles": key_tiles,
        "BLOCK_M": by_key.block_m,
        "BLOCK_N": by_key.block_n,
        "ROWS_FIRST": by_key.rows_first,
        "WIDE": far(by_key.block_m + 1, *(common[f"stride_{n}"] for n in ("qs", "gs", "qh", "gh"))),
    }
    for_queries = {
        **common,
        "GradQ": grad_q,
        **strides("x", grad_q, ragged, 0),
        "tiles": row_tiles,
        "BLOCK_M": by_query.block_m,
        "BLOCK_N": by_query.block_n,
        "WIDE": far(by_query.block_n, common["stride_ks"], common["stride_vs"]),
    }
    programs = layout.batch * heads_kv
    launches = (
        _prepare(out, grad, lse, top, delta, layout),
        Launch(backward_kv, programs * key_tiles, for_keys, by_key.options),
        Launch(backward_q, programs * row_tiles, for_queries, by_query.options),
    )
    return Backward(launches, grad_q, grad_k, grad_v)


def _shipped(facts: Facts, head_k: int, head_v: int, kernel: str) -> Config:
    return tiles.backward_config(facts.arch, max(head_k, head_v), kernel)


def _prepare(out: Tensor, grad: Tensor, lse: Tensor, top: Tensor, delta: Tensor, layout: Layout) -> Launch:
    ragged = layout.cu_q is not None
    block_d = tiles.power_of_two(out.shape[-1])
    block_r = max(1, 4096 // block_d)
    arguments = {
        "Out": out,
        "Grad": grad,
        "Lse": lse,
        "Top": top,
        "Delta": delta,
        **strides("o", out, ragged, 0),
        **strides("g", grad, ragged, 0),
        "q_len": max(1, out.shape[0] if ragged else layout.q_len),
        "heads": out.shape[1],
        "rows": lse.numel(),
        "DV": out.shape[-1],
        "BLOCK_D": block_d,
        "BLOCK_R": block_r,
    }
    return Launch(backward_prepare, math.ceil(lse.numel() / block_r), arguments, {"num_warps": 4})
