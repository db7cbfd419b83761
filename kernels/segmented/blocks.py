"""Query-blocked exact attention, forward and backward.

A block of 128 queries meets all the keys it may see at once, so the softmax is exact in one go and the
workspace is O(block x kv_len). Grouped heads are folded into the rows of the block, so K and V are never
expanded. The backward pass recomputes the weights block by block instead of keeping them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

#: Queries per block.
BLOCK = 128


@dataclass(frozen=True)
class Rule:
    """Which keys a query sees and how scores are made."""

    causal: bool
    bottom_right: bool
    window: int | None
    softcap: float | None
    scale: float


@dataclass(frozen=True)
class Segment:
    """Queries [q_from, q_to) attend to keys [k_from, k_to)."""

    q_from: int
    q_to: int
    k_from: int
    k_to: int

    def offset(self, rule: Rule) -> int:
        """Position of the first query, counted in keys of the segment."""
        return (self.k_to - self.k_from) - (self.q_to - self.q_from) if rule.bottom_right else 0


@dataclass(frozen=True)
class Tile:
    """One block: rows [i, j), keys [low, high) of the tensors; ``position`` of row i relative to key low."""

    i: int
    j: int
    low: int
    high: int
    position: int
    dead_rows: bool


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
    """Shapes and meaning as in :func:`kernels.attention.attention`. The mask gets no gradient."""
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    rule = Rule(causal, causal_alignment == "bottom_right", window, softcap, scale)
    segments = [Segment(0, q.shape[2], 0, k.shape[2])]
    if mask is not None:
        if mask.requires_grad:
            raise NotImplementedError("segmented: the mask gets no gradient; detach it")
        group = q.shape[1] // k.shape[1]
        full = mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        mask = torch.unflatten(full, 1, (k.shape[1], group))
    return _run(q, k, v, mask, segments, rule)


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
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    rule = Rule(causal, True, window, softcap, scale)
    a, b = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    segments = [Segment(a[n], a[n + 1], b[n], b[n + 1]) for n in range(len(a) - 1)]
    out = _run(q.transpose(0, 1)[None], k.transpose(0, 1)[None], v.transpose(0, 1)[None], None, segments, rule)
    return out[0].transpose(0, 1)


def _run(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, segments: list[Segment], rule: Rule) -> Tensor:
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        out: Tensor = _Segmented.apply(q, k, v, mask, segments, rule)  # type: ignore[no-untyped-call]
        return out
    return _forward(q, k, v, mask, segments, rule)


def _tiles(segments: list[Segment], rule: Rule) -> Iterator[Tile]:
    """Blocks of queries with the keys that they see between them; blocks that see none are left out."""
    for s in segments:
        length, offset = s.k_to - s.k_from, s.offset(rule)
        for i in range(0, s.q_to - s.q_from, BLOCK):
            j = min(i + BLOCK, s.q_to - s.q_from)
            high = min(length, j + offset) if rule.causal else length
            low = 0 if rule.window is None else max(0, i + offset - rule.window + 1)
            if low >= high:
                continue
            dead = rule.causal and i + offset < 0
            dead |= rule.window is not None and j - 1 + offset - rule.window + 1 >= length
            first = s.q_from
            yield Tile(first + i, first + j, s.k_from + low, s.k_from + high, i + offset - low, dead)


def _rows(x: Tensor, tile: Tile) -> Tensor:
    """(B, Hkv, G, Sq, D) -> the block as (B, Hkv, G * n, D)."""
    return x[:, :, :, tile.i : tile.j].flatten(2, 3)


def _weights(rows: Tensor, k: Tensor, mask: Tensor | None, tile: Tile, rule: Rule) -> tuple[Tensor, Tensor | None]:
    """Softmax weights (B, Hkv, G * n, L) of one block, and the slope of the softcap where there is one."""
    n, length = tile.j - tile.i, tile.high - tile.low
    scores = rows @ k[:, :, tile.low : tile.high].transpose(-1, -2)
    slope = None
    if rule.softcap is not None or (mask is not None and mask.dtype != torch.bool):
        scores = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    if rule.softcap is not None:
        scores = torch.tanh_(scores.div_(rule.softcap))
        slope = 1 - scores.square()
        scores = scores.mul_(rule.softcap)
    shaped = torch.unflatten(scores, 2, (-1, n))
    _hide(shaped, tile, rule, n, length)
    if mask is not None:
        part = mask[:, :, :, tile.i : tile.j, tile.low : tile.high]
        if part.dtype == torch.bool:
            shaped.masked_fill_(~part, -math.inf)
        else:
            shaped.add_(part)
    weights = torch.softmax(scores, dim=-1)
    if tile.dead_rows or mask is not None:
        # A row without any key is -inf throughout: softmax gives NaN where the answer is 0.
        weights = weights.masked_fill_(scores.amax(dim=-1, keepdim=True) == -math.inf, 0.0)
    return weights.to(rows.dtype), slope


def _hide(scores: Tensor, tile: Tile, rule: Rule, n: int, length: int) -> None:
    """Set what causal and window hide to -inf; only the columns at the edges are touched."""
    position = torch.arange(tile.position, tile.position + n, device=scores.device)[:, None]
    if rule.causal and (begin := max(0, tile.position + 1)) < length:
        key = torch.arange(begin, length, device=scores.device)
        scores[..., begin:].masked_fill_(key > position, -math.inf)
    if rule.window is not None and (end := min(length, tile.position + n - rule.window)) > 0:
        key = torch.arange(end, device=scores.device)
        scores[..., :end].masked_fill_(key <= position - rule.window, -math.inf)


def _forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, segments: list[Segment], rule: Rule) -> Tensor:
    grouped = torch.unflatten(q, 1, (k.shape[1], -1))
    out = torch.zeros_like(q) if rule.causal or rule.window or len(segments) != 1 else torch.empty_like(q)
    if k.shape[2] == 0:
        return out.zero_()
    target = torch.unflatten(out, 1, (k.shape[1], -1))
    for tile in _tiles(segments, rule):
        weights, _ = _weights(_rows(grouped, tile) * rule.scale, k, mask, tile, rule)
        block = weights @ v[:, :, tile.low : tile.high]
        target[:, :, :, tile.i : tile.j] = torch.unflatten(block, 2, (-1, tile.j - tile.i))
    return out


class _Segmented(torch.autograd.Function):
    """Keeps the inputs only."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        segments: list[Segment],
        rule: Rule,
    ) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.mask, ctx.segments, ctx.rule = mask, segments, rule
        return _forward(q, k, v, mask, segments, rule)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        dq, dk, dv = _backward(q, k, v, grads[0], ctx.mask, ctx.segments, ctx.rule)
        return dq, dk, dv, None, None, None


def _backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad: Tensor,
    mask: Tensor | None,
    segments: list[Segment],
    rule: Rule,
) -> tuple[Tensor, Tensor, Tensor]:
    heads = (k.shape[1], -1)
    wide = torch.float32 if q.dtype in (torch.float16, torch.bfloat16) else q.dtype
    dq = torch.zeros_like(q)
    # Many blocks add to one key, so the sums are kept in float32.
    dk, dv = (torch.zeros(x.shape, dtype=wide, device=x.device) for x in (k, v))
    q5, g5, dq5 = (torch.unflatten(x, 1, heads) for x in (q, grad, dq))
    for tile in _tiles(segments, rule):
        span = slice(tile.low, tile.high)
        rows, g = _rows(q5, tile) * rule.scale, _rows(g5, tile)
        weights, slope = _weights(rows, k, mask, tile, rule)
        dv[:, :, span] += weights.transpose(-1, -2) @ g
        inner = (g @ v[:, :, span].transpose(-1, -2)).to(wide)
        # From the same rounded products, not from the output: where one key is seen the gradient is then 0.
        inner -= (inner * weights).sum(dim=-1, keepdim=True)
        inner *= weights
        if slope is not None:
            inner *= slope
        inner = inner.to(q.dtype)
        dk[:, :, span] += inner.transpose(-1, -2) @ rows
        block = (inner @ k[:, :, span]) * rule.scale
        dq5[:, :, :, tile.i : tile.j] = torch.unflatten(block, 2, (-1, tile.j - tile.i))
    return dq, dk.to(k.dtype), dv.to(v.dtype)
