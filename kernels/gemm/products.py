"""a (m, k) times b (k, n): as the matrices lie, and two remedies for rows that are not aligned."""

from __future__ import annotations

import torch
from torch import Tensor

#: Elements to which rows are aligned.
ALIGNED = 32


def native(a: Tensor, b: Tensor) -> Tensor:
    """torch.matmul: (m, n)."""
    return a @ b


def padded(a: Tensor, b: Tensor) -> Tensor:
    """Copies an operand whose rows are not aligned into zero-padded rows that are; the product has the pad cut off."""
    k, n = b.shape
    wide_k, wide_n = _up(k), _up(n)
    left = a if wide_k == k and _aligned(a) else _copy(a, a.shape[0], wide_k)
    right = b if (wide_k, wide_n) == (k, n) and _aligned(b) else _copy(b, wide_k, wide_n)
    return (left @ right)[:, :n]


def split(a: Tensor, b: Tensor) -> Tensor:
    """The part whose k and n are multiples of 32 by itself, then the strips that are left."""
    k, n = b.shape
    whole_k, whole_n = k // ALIGNED * ALIGNED, n // ALIGNED * ALIGNED
    out = torch.empty((a.shape[0], n), dtype=a.dtype, device=a.device)
    if whole_n:
        torch.matmul(a[:, :whole_k], b[:whole_k, :whole_n], out=out[:, :whole_n])
        if whole_k < k:
            out[:, :whole_n].addmm_(a[:, whole_k:], b[whole_k:, :whole_n])
    if whole_n < n:
        out[:, whole_n:] = a @ b[:, whole_n:]
    return out


def _aligned(x: Tensor) -> bool:
    return x.stride(1) == 1 and x.stride(0) % ALIGNED == 0


def _up(n: int) -> int:
    return -(-n // ALIGNED) * ALIGNED


def _copy(x: Tensor, rows: int, columns: int) -> Tensor:
    wide = x.new_zeros((rows, columns))
    wide[: x.shape[0], : x.shape[1]] = x
    return wide
