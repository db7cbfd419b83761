"""Exact work of an attention problem: unmasked (query, key) pairs, keys used, FLOPs and bytes. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Bytes of one element per dtype name that workloads may use.
ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}

#: The same of what keys and values may be stored in.
STORED_ITEMSIZE = {**ITEMSIZE, "float8_e4m3fn": 1, "float8_e5m2": 1}


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
    spans: Iterable[Span],
    *,
    heads_q: int,
    heads_kv: int,
    head_dim: int,
    itemsize: int,
    backward: bool = False,
    head_dim_v: int | None = None,
    stored_itemsize: int | None = None,
) -> Work:
    """Sum over sequences.

    Forward: two products, 2 FLOPs per pair, head and element of ``head_dim`` and of ``head_dim_v`` (the same where not
    given); bytes are q, the used K and V (of ``stored_itemsize`` an element where it is given), and o,
    once each. Backward: five products, three of them over ``head_dim``; bytes are those and the gradient of each once.
    """
    pairs = queries = keys = 0
    for span in spans:
        p, k = pairs_and_keys(span)
        pairs += p * span.count
        keys += k * span.count
        queries += span.q_len * span.count
    head_v = head_dim if head_dim_v is None else head_dim_v
    stored = itemsize if stored_itemsize is None else stored_itemsize
    moved = (head_dim + head_v) * (heads_q * queries * itemsize + heads_kv * keys * stored)
    products = 3 * head_dim + 2 * head_v if backward else head_dim + head_v
    return Work(
        pairs=pairs,
        query_tokens=queries,
        used_keys=keys,
        flops=2.0 * products * heads_q * pairs,
        bytes=moved * (2 if backward else 1),
    )
