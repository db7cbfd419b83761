"""What a cache that keeps a share of its keys costs and saves, by which keys are kept.

Later queries resemble observed ones, as in a model that goes on with a text: they look for the same keys, with noise.
How sharply they look is ``spread``, the standard deviation of their scores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .estimates import Estimate, mean

#: Scores of keys (B, Hkv, L) from (observed queries, keys, seed).
Policy = Callable[[Any, Any, int], Any]


@dataclass(frozen=True)
class Pruned:
    """``bytes`` of keys and values over those of the whole cache; ``error`` of the result over its largest value;
    ``mass``: attention that the kept keys had; ``seconds`` of the decode steps and ``whole_seconds`` over the whole
    cache, in turns, the fastest of each."""

    policy: str
    keep: float
    shared: bool
    spread: float
    bytes: float
    error: Estimate
    mass: Estimate
    seconds: float
    whole_seconds: float


def random_scores(observed: Any, k: Any, seed: int) -> Any:
    """Any keys."""
    import torch

    return torch.rand(k.shape[:3], generator=torch.Generator().manual_seed(seed))


def recent_scores(observed: Any, k: Any, seed: int) -> Any:
    """The newest keys."""
    import torch

    return torch.arange(k.shape[2], dtype=torch.float32).expand(k.shape[:3])


def sweep(
    pruning: Any,
    *,
    keeps: Sequence[float],
    spreads: Sequence[float],
    shared: Sequence[bool] = (False, True),
    length: int = 1024,
    heads_q: int = 8,
    heads_kv: int = 2,
    head_dim: int = 64,
    steps: int = 8,
    observed: int = 32,
    seeds: int = 5,
) -> list[Pruned]:
    """Each policy x share kept x spread. ``pruning`` is the module ``kernels.kv_pruning.pruning``."""
    import torch

    policies: dict[str, Policy] = {
        "entropy": lambda q, k, seed: pruning.importance(q, k), "random": random_scores, "recent": recent_scores,
    }  # fmt: skip
    found = []
    for spread in spreads:
        for keep in keeps:
            for name, policy in policies.items():
                for same in shared:
                    errors, masses, times, wholes, share = [], [], [], [], 0.0
                    for seed in range(seeds):
                        made = torch.Generator().manual_seed(seed)
                        k, v = (torch.randn(1, heads_kv, length, head_dim, generator=made) for _ in range(2))
                        base = torch.randn(1, heads_q, 1, head_dim, generator=made) * spread * 0.9
                        noise = torch.randn(1, heads_q, observed + steps, head_dim, generator=made) * spread * 0.436
                        both = base + noise
                        seen, q = both[:, :, :observed], both[:, :, observed:]
                        positions = pruning.kept(policy(seen, k, seed), keep, same)
                        small_k, small_v = pruning.compact(k, positions), pruning.compact(v, positions)
                        share = (small_k.nbytes + small_v.nbytes) / (k.nbytes + v.nbytes)
                        for _ in range(3):
                            got, seconds = _timed(pruning, q, small_k, small_v)
                            full, whole = _timed(pruning, q, k, v)
                            times.append(seconds)
                            wholes.append(whole)
                        errors.append(float((got - full).abs().max() / full.abs().max()))
                        all_mass = torch.unflatten(pruning.attention_mass(q, k), 2, (-1, steps))
                        where = positions[:, :, None, None].expand(-1, -1, *all_mass.shape[2:4], -1)
                        masses.append(float(all_mass.gather(4, where).sum(-1).mean()))
                    made_of = (share, mean(errors), mean(masses), min(times), min(wholes))
                    found.append(Pruned(name, keep, same, spread, *made_of))
    return found


def _timed(pruning: Any, q: Any, k: Any, v: Any) -> tuple[Any, float]:
    begin = time.perf_counter()
    return pruning.attend(q, k, v, None), time.perf_counter() - begin


def zeroing(pruning: Any, *, keep: float, spread: float, length: int = 1024, head_dim: int = 64) -> tuple[float, float]:
    """(bytes over those of the whole cache, attention that zeroed keys still get) where pruned keys are set to 0."""
    import torch

    made = torch.Generator().manual_seed(0)
    k = torch.randn(1, 1, length, head_dim, generator=made)
    q = torch.randn(1, 1, 16, head_dim, generator=made) * spread
    positions = pruning.kept(pruning.importance(q, k), keep, False)
    stays = torch.zeros(k.shape[:3], dtype=torch.bool).scatter_(2, positions, True)
    zeroed = torch.where(stays[..., None], k, 0)
    lost = pruning.attention_mass(q, zeroed)[..., ~stays[0, 0]].sum(-1).mean()
    return zeroed.nbytes / k.nbytes, float(lost)
