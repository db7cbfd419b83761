"""What a wrong reduction over ranks does to a gradient: its norm and variance beside those of one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .estimates import Estimate, mean


@dataclass(frozen=True)
class Reduced:
    """``norm`` and ``variance`` over those of the gradient that one process computes, over seeds; ``error`` is the
    largest distance from it over its largest value."""

    kind: str
    batch: int
    ranks: int
    reduction: str
    norm: Estimate
    variance: Estimate
    error: float


def compare(
    reduced: Callable[..., Any],
    whole: Callable[..., Any],
    *,
    kinds: Sequence[tuple[str, int]],
    batches: Sequence[int],
    ranks: Sequence[int],
    heads_q: int = 8,
    length: int = 4,
    head_dim: int = 8,
    hidden: int = 16,
    seeds: int = 3,
) -> list[Reduced]:
    """Every kind (name, heads of keys and values) x batch x ranks x reduction, ``seeds`` times.

    ``reduced(q, x, w, g, heads_kv=, ranks=, reduction=)`` runs on so many processes, ``whole`` in this one, as in
    ``kernels.kv_gradients.ranks``.
    """
    import torch

    found = []
    for (kind, heads_kv), batch, count in ((k, b, r) for k in kinds for b in batches for r in ranks):
        for reduction in ("mean", "sum"):
            norms, variances, worst = [], [], 0.0
            for seed in range(seeds):
                made = torch.Generator().manual_seed(seed)
                q, g = (torch.randn(batch, heads_q, length, head_dim, generator=made) for _ in range(2))
                x = torch.randn(batch, length, hidden, generator=made)
                w = torch.randn(hidden, 2 * heads_kv * head_dim, generator=made)
                right = whole(q, x, w, g, heads_kv=heads_kv, ranks=1)
                got = reduced(q, x, w, g, heads_kv=heads_kv, ranks=count, reduction=reduction)
                norms.append(float(got.norm() / right.norm()))
                variances.append(float(got.var() / right.var()))
                worst = max(worst, float((got - right).abs().max() / right.abs().max()))
            found.append(Reduced(kind, batch, count, reduction, mean(norms), mean(variances), worst))
    return found
