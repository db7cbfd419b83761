"""The explicit masks that workloads may name. numpy only: counting needs them without torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: ``KIND`` or ``KIND:PATTERN``. ``bool`` hides a quarter of the keys at random, never a query's own;
#: ``bool:padding`` the keys beyond a length per sequence; ``bool:masked_rows`` is ``bool`` with one query in
#: sixteen that sees nothing. ``additive`` is a bias in the case's dtype that grows with distance.
MASKS = ("none", "bool", "bool:padding", "bool:masked_rows", "additive")

_SEED = 20240229


def allowed_by(kind: str, batch: int, q_len: int, kv_len: int) -> NDArray[np.bool_] | None:
    """Where attention is allowed, (batch or 1, q_len or 1, kv_len); None where the mask hides nothing.

    Depends on its arguments only, so that the count and the tensor agree.
    """
    if not kind.startswith("bool"):
        return None
    random = np.random.default_rng([_SEED, batch, q_len, kv_len])
    if kind == "bool:padding":
        kept = random.integers(max(kv_len // 2, 1), kv_len, size=batch, endpoint=True)
        padding: NDArray[np.bool_] = (np.arange(kv_len) < kept[:, None])[:, None, :]
        return padding
    mask: NDArray[np.bool_] = random.random((1, q_len, kv_len)) < 0.75
    query = np.arange(q_len)
    for offset in (0, kv_len - q_len):  # own position, either alignment
        mask[0, query, np.clip(query + offset, 0, kv_len - 1)] = True
    if kind == "bool:masked_rows":
        mask[0, q_len // 2 :: 16] = False
    return mask


def bias(q_len: int, kv_len: int) -> NDArray[np.float32]:
    """Additive mask (1, 1, q_len, kv_len): minus the distance between query and key over 64, at least -8."""
    distance = np.abs(np.arange(kv_len)[None, :] - (np.arange(q_len)[:, None] + kv_len - q_len))
    additive: NDArray[np.float32] = np.maximum(-distance / 64.0, -8.0).astype(np.float32)[None, None]
    return additive
