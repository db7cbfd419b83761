"""Exact work of an attention problem: unmasked (query, key) pairs, keys used, FLOPs and bytes. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Backward over forward: five matrix products per pair instead of two.
BACKWARD_FLOPS = 2.5

#: Bytes of one element per dtype name that workloads may use.
ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence: ``q_len`` queries against ``kv_len`` keys, ``count`` times alike (the batch).

    Query ``i`` stands at key position ``i + kv_len - q_len`` (``bottom_right``) or ``i`` (``top_left``).
    ``causal`` hides later keys; ``window`` keeps that many keys up to and including the own position.
    ``mask`` (q_len, kv_len or 1) is True where attention is allowed, besides all that.
    """

    q_len: int
    kv_len: int
    causal: bool = False
    causal_alignment: str = "bottom_right"
    window: int | None = None
    count: int = 1
    mask: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What one call has to do. ``flops`` and ``bytes`` are those of the pass that is timed."""

    pairs: int
    query_tokens: int
    used_keys: int
    flops: float
    bytes: int


def allowed(span: Span) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First key and one past the last key that each query may see, both of shape (q_len,)."""
    offset = span.kv_len - span.q_len if span.causal_alignment == "bottom_right" else 0
    position = np.arange(span.q_len, dtype=np.int64) + offset
    low = np.zeros_like(position) if span.window is None else position - span.window + 1
    high = position + 1 if span.causal else np.full_like(position, span.kv_len)
    low = np.clip(low, 0, span.kv_len)
    return low, np.maximum(np.clip(high, 0, span.kv_len), low)


def pairs_and_keys(span: Span) -> tuple[int, int]:
    """Unmasked (query, key) pairs, and keys that at least one query sees, of one of ``count`` sequences."""
    low, high = allowed(span)
    if span.mask is not None:
        keys = np.arange(span.kv_len)
        seen = (keys >= low[:, None]) & (keys < high[:, None]) & span.mask
        return int(seen.sum()), int(seen.any(axis=0).sum())
    edges = np.zeros(span.kv_len + 1, dtype=np.int64)
    np.add.at(edges, low, 1)
    np.add.at(edges, high, -1)
    return int((high - low).sum()), int((np.cumsum(edges[:-1]) > 0).sum())


def work(
    spans: Iterable[Span], *, heads_q: int, heads_kv: int, head_dim: int, itemsize: int, backward: bool = False
) -> Work:
    """Sum over sequences.

    Forward: 4 FLOPs per pair, head and element of ``head_dim`` (two products); bytes are q, the used K and V,
    and o, once each. Backward: 2.5 times the FLOPs; bytes are those and the gradient of each once.
    """
    pairs = queries = keys = 0
    for span in spans:
        p, k = pairs_and_keys(span)
        pairs += p * span.count
        keys += k * span.count
        queries += span.q_len * span.count
    elements = head_dim * (2 * heads_q * queries + 2 * heads_kv * keys)
    flops = 4.0 * head_dim * heads_q * pairs
    return Work(
        pairs=pairs,
        query_tokens=queries,
        used_keys=keys,
        flops=flops * (BACKWARD_FLOPS if backward else 1.0),
        bytes=elements * itemsize * (2 if backward else 1),
    )
