"""Inputs, the naive oracle and the tolerance rule that all kernel tests share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Standard normal numbers, the same for the same arguments."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def qkv(
    batch: int,
    heads_q: int,
    heads_kv: int,
    q_len: int,
    kv_len: int,
    head_dim: int,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:
    """q (B, Hq, Sq, D), k and v (B, Hkv, Skv, D)."""
    q = normal(batch, heads_q, q_len, head_dim, dtype=dtype, seed=1)
    k, v = (normal(batch, heads_kv, kv_len, head_dim, dtype=dtype, seed=s) for s in (2, 3))
    return q, k, v


def cumulative(sizes: list[int]) -> Tensor:
    """int32 [len + 1] of where each begins."""
    return torch.tensor([0, *itertools.accumulate(sizes)], dtype=torch.int32)


def ragged(q_lens: list[int], kv_lens: list[int]) -> dict[str, Any]:
    """Keyword arguments of a varlen call."""
    return {
        "cu_seqlens_q": cumulative(q_lens),
        "cu_seqlens_k": cumulative(kv_lens),
        "max_seqlen_q": max(q_lens, default=0),
        "max_seqlen_k": max(kv_lens, default=0),
    }


def naive(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    alignment: str,
    window: int | None,
    softcap: float | None,
    mask: Tensor | None,
    scale: float | None = None,
) -> Tensor:
    """Attention one number at a time, in Python floats. Shares nothing with the oracle but the definition."""
    batch, heads_q, q_len, head_dim = q.shape
    heads_kv, kv_len = k.shape[1], k.shape[2]
    offset = kv_len - q_len if alignment == "bottom_right" else 0
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    full = None if mask is None else mask.expand(batch, heads_q, q_len, kv_len)
    out = torch.zeros(batch, heads_q, q_len, head_dim, dtype=torch.float64)
    for b, h, i in itertools.product(range(batch), range(heads_q), range(q_len)):
        g = h // (heads_q // heads_kv)
        scores: dict[int, float] = {}
        for j in range(kv_len):
            if causal and j > i + offset:
                continue
            if window is not None and j <= i + offset - window:
                continue
            score = scale * sum(x * y for x, y in zip(q[b, h, i].tolist(), k[b, g, j].tolist(), strict=True))
            if softcap is not None:
                score = softcap * math.tanh(score / softcap)
            if full is not None and full.dtype == torch.bool:
                if not full[b, h, i, j]:
                    continue
            elif full is not None:
                score += float(full[b, h, i, j])
            if score > -math.inf:
                scores[j] = score
        if not scores:
            continue
        top = max(scores.values())
        weights = {j: math.exp(s - top) for j, s in scores.items()}
        total = sum(weights.values())
        for j, weight in weights.items():
            out[b, h, i] += (weight / total) * v[b, g, j].double()
    return out


def excess(out: Tensor, exact: Tensor, low: Tensor, factor: float = 2.0, roundings: int = 1) -> float:
    """max|out - exact| over what is allowed.

    Allowed is ``factor`` x the error of the oracle computed in the dtype of ``out``, and ``roundings`` of the
    largest value in that dtype: over few numbers the oracle may be right by luck, and no kernel can do
    better than round its output once.
    """
    assert out.shape == exact.shape, f"{tuple(out.shape)} is not {tuple(exact.shape)}"
    if not exact.numel():
        return 0.0
    error = (out.detach().double() - exact.double()).abs().max().item()
    largest = max(1.0, exact.abs().max().item())
    allowed = factor * (low.double() - exact.double()).abs().max().item()
    allowed += largest * (1e-5 + roundings * torch.finfo(out.dtype).eps / 2)
    return math.inf if math.isnan(error) else error / allowed


def check_forward(
    run: Callable[..., Tensor],
    oracle: Callable[..., Tensor],
    tensors: tuple[Tensor, ...],
    options: Mapping[str, Any],
    roundings: int = 1,
) -> None:
    """The forward rule: at most twice the error of the oracle computed in the dtype of the inputs."""
    out = run(*tensors, **options)
    assert out.dtype == tensors[0].dtype
    exact = oracle(*tensors, **options)
    low = oracle(*tensors, **options, dtype=tensors[0].dtype)
    assert excess(out, exact, low, roundings=roundings) <= 1


def check_backward(
    run: Callable[..., Tensor], oracle: Callable[..., Tensor], tensors: tuple[Tensor, ...], options: Mapping[str, Any]
) -> None:
    """The gradient rule: three times and four roundings, for sums over blocks and heads add their own."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    out = run(*leaves, **options)
    grad = normal(*out.shape, dtype=out.dtype, seed=9)
    found = torch.autograd.grad(out, leaves, grad)
    exact = torch.autograd.grad(oracle(*leaves, **options), leaves, grad.double())
    low = torch.autograd.grad(oracle(*leaves, **options, dtype=leaves[0].dtype), leaves, grad)
    for name, a, b, c in zip("qkv", found, exact, low, strict=True):
        assert excess(a, b, c, factor=3.0, roundings=4) <= 1, f"gradient of {name}"
