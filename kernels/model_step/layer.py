"""One attention layer with its projections, in four phases. What it keeps is named for the profiler.

``record_function("memory.PART")``: what outlives the range is PART (``kv_cache``, ``activations``, ``gradients``,
``optimiser``), what is freed inside is workspace.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.profiler import record_function

from kernels.segmented import blocks

PHASES = ("prefill", "chunked_prefill", "decode", "train")
#: Step size and momentum of the training step.
RATE, MOMENTUM = 0.1, 0.9

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def segmented(
    x: Tensor, w_qkv: Tensor, w_out: Tensor, cache: Tensor, *, phase: str, heads_q: int, chunk: int
) -> Tensor:
    """The layer's result, or for ``train`` the weights after one step.

    Args:
        x: (B, S, H), S is 1 for ``decode``.
        w_qkv: ((Hq + 2 Hkv) D, H); w_out: (H, Hq D).
        cache: (B, 2, Hkv, L, D), read by ``decode``, which sees all L keys; L is 0 for the other phases.
        phase: one of :data:`PHASES`; ``prefill`` makes a cache of S keys, ``chunked_prefill`` too, ``chunk`` queries
            at a time.

    Returns:
        (B, S, H), or (``w_qkv`` and ``w_out`` flat, one after the other).
    """
    return run(x, w_qkv, w_out, cache, phase, heads_q, chunk, attend=_blocks)


def scores(x: Tensor, w_qkv: Tensor, w_out: Tensor, cache: Tensor, *, phase: str, heads_q: int, chunk: int) -> Tensor:
    """The same with all scores at once: (B, Hq, S, L) is kept."""
    return run(x, w_qkv, w_out, cache, phase, heads_q, chunk, attend=all_scores)


def run(
    x: Tensor, w_qkv: Tensor, w_out: Tensor, cache: Tensor, phase: str, heads_q: int, chunk: int, *, attend: Attend
) -> Tensor:
    """A phase with ``attend`` (q (B, Hq, S, D), k and v (B, Hkv, L, D), causal, bottom right) as its attention."""
    if phase not in PHASES:
        raise ValueError(f"phase is one of {', '.join(PHASES)}, not {phase!r}")
    if phase == "decode":
        q, _, _ = _project(x, w_qkv, heads_q, cache.shape[-1])
        k, v = cache.unbind(1)
        return _merge(attend(q, k, v), w_out)
    dim = cache.shape[-1]
    if phase == "train":
        return _train(x, w_qkv, w_out, heads_q, dim, attend)
    step = x.shape[1] if phase == "prefill" else chunk
    with record_function("memory.kv_cache"):
        heads_kv = cache.shape[2]
        made = torch.empty((x.shape[0], 2, heads_kv, x.shape[1], dim), dtype=x.dtype, device=x.device)
    out = torch.empty_like(x)
    for at in range(0, x.shape[1], step):
        end = min(at + step, x.shape[1])
        q, k, v = _project(x[:, at:end], w_qkv, heads_q, dim)
        made[:, 0, :, at:end], made[:, 1, :, at:end] = k, v
        del k, v
        keys, values = made[:, :, :, :end].unbind(1)
        out[:, at:end] = _merge(attend(q, keys, values), w_out)
    return out


def _train(x: Tensor, w_qkv: Tensor, w_out: Tensor, heads_q: int, dim: int, attend: Attend) -> Tensor:
    """Momentum descent on the mean square of the result."""
    weights = [w.detach().requires_grad_() for w in (w_qkv, w_out)]
    with record_function("memory.activations"), torch.enable_grad():
        q, k, v = _project(x, weights[0], heads_q, dim)
        loss = _merge(attend(q, k, v), weights[1]).square().mean()
    with record_function("memory.gradients"):
        gradients = torch.autograd.grad(loss, weights)
    with record_function("memory.optimiser"):
        momenta = [torch.zeros_like(w) for w in weights]
        for m, g in zip(momenta, gradients, strict=True):
            m.mul_(MOMENTUM).add_(g)
    return torch.cat([(w.detach() - RATE * m).flatten() for w, m in zip(weights, momenta, strict=True)])


def _project(x: Tensor, w_qkv: Tensor, heads_q: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """(B, heads, S, D) each."""
    heads_kv = (w_qkv.shape[0] // dim - heads_q) // 2
    made = torch.unflatten(torch.nn.functional.linear(x, w_qkv), -1, (-1, dim)).transpose(1, 2)
    q, k, v = torch.split(made, [heads_q, heads_kv, heads_kv], 1)
    return q, k, v


def _merge(heads: Tensor, w_out: Tensor) -> Tensor:
    return torch.nn.functional.linear(heads.transpose(1, 2).flatten(2), w_out)


def _blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return blocks.attention(q, k, v, causal=True)


def all_scores(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention with (B, Hkv, G, S, L) scores in memory."""
    rows = torch.unflatten(q, 1, (k.shape[1], -1))
    found = rows @ k[:, :, None].transpose(-1, -2) / math.sqrt(q.shape[-1])
    hidden = torch.ones(found.shape[-2:], dtype=torch.bool, device=q.device).triu_(k.shape[2] - q.shape[2] + 1)
    weights = torch.softmax(found.masked_fill_(hidden, -math.inf), -1)
    return (weights @ v[:, :, None]).flatten(1, 2)
