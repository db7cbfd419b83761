"""Readable oracle of the layer: one sequence and one head at a time, every phase from the same few lines."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .layer import RATE


def model_step(
    x: Tensor, w_qkv: Tensor, w_out: Tensor, cache: Tensor, *, phase: str, heads_q: int, chunk: int,
    dtype: torch.dtype = torch.float64,
) -> Tensor:  # fmt: skip
    """As :func:`kernels.model_step.layer.segmented`, computed and returned in ``dtype``. Chunks change no value."""
    x, w_qkv, w_out, cache = (t.to(dtype) for t in (x, w_qkv, w_out, cache))
    if phase != "train":
        return _layer(x, w_qkv, w_out, cache if phase == "decode" else None, heads_q, cache.shape[-1])
    weights = [w.detach().requires_grad_() for w in (w_qkv, w_out)]
    with torch.enable_grad():
        loss = _layer(x, weights[0], weights[1], None, heads_q, cache.shape[-1]).square().mean()
        gradients = torch.autograd.grad(loss, weights)
    # The first step from momenta of zero.
    return torch.cat([(w.detach() - RATE * g).flatten() for w, g in zip(weights, gradients, strict=True)])


def _layer(x: Tensor, w_qkv: Tensor, w_out: Tensor, cache: Tensor | None, heads_q: int, dim: int) -> Tensor:
    heads_kv = (w_qkv.shape[0] // dim - heads_q) // 2
    rows = []
    for b in range(x.shape[0]):
        parts = (x[b] @ w_qkv.T).reshape(x.shape[1], -1, dim)
        heads = []
        for h in range(heads_q):
            g = h // (heads_q // heads_kv)
            if cache is None:
                k, v = parts[:, heads_q + g], parts[:, heads_q + heads_kv + g]
            else:
                k, v = cache[b, 0, g], cache[b, 1, g]
            s = parts[:, h] @ k.T / math.sqrt(dim)
            later = torch.arange(k.shape[0])[None] > torch.arange(x.shape[1])[:, None] + k.shape[0] - x.shape[1]
            heads.append(torch.softmax(s.masked_fill(later.to(s.device), -math.inf), -1) @ v)
        rows.append(torch.cat(heads, 1) @ w_out.T)
    return torch.stack(rows)
