"""Readable oracle: one request after the other, each its own gradient, then their mean."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def kv_gradients(
    q: Tensor, x: Tensor, w: Tensor, g: Tensor, *, heads_kv: int, ranks: int, dtype: torch.dtype = torch.float64
) -> Tensor:
    """As :func:`kernels.kv_gradients.ranks.averaged`, computed and returned in ``dtype``; ``ranks`` says nothing."""
    batch, heads_q, _, dim = q.shape
    group = heads_q // heads_kv
    total = torch.zeros(w.shape, dtype=dtype, device=w.device)
    for b in range(batch):
        leaf = w.detach().to(dtype).requires_grad_()
        with torch.enable_grad():
            k, v = torch.unflatten(x[b].to(dtype) @ leaf, 1, (2, heads_kv, dim)).unbind(1)
            loss = torch.zeros((), dtype=dtype, device=w.device)
            for head in range(heads_q):
                scores = q[b, head].to(dtype) @ k[:, head // group].T / math.sqrt(dim)
                loss = loss + (torch.softmax(scores, -1) @ v[:, head // group] * g[b, head].to(dtype)).sum()
        total += torch.autograd.grad(loss, leaf)[0]
    return total / batch
