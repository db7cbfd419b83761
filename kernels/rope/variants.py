"""Rotary embedding, rotated halves: per length, from a cached table, and padded to the longest sequence."""

from __future__ import annotations

import torch
from torch import Tensor

#: Base of the angles' geometric series.
BASE = 10000.0


def per_length(x: Tensor, *, lens: Tensor, table: Tensor) -> Tensor:
    """(T, H, D), sequences end to end.

    Args:
        x: (T, H, D), D even. T is the sum of ``lens``.
        lens: (B,) int32, read on the host.
        table: (longest, D) float32, cosines and then sines of every position; read by :func:`cached` only.
    """
    return shared_angles(x, lens.tolist())


def shared_angles(x: Tensor, lens: list[int]) -> Tensor:
    """:func:`per_length` with the lengths on the host."""
    out = torch.empty_like(x)
    angles = _angles(x, 0, max(lens))
    at = 0
    for n in lens:
        _rotate(x[at : at + n], angles[0][:n], angles[1][:n], out[at : at + n])
        at += n
    return out


def cached(x: Tensor, *, lens: Tensor, table: Tensor) -> Tensor:
    """The same from ``table``."""
    out = torch.empty_like(x)
    half, at = x.shape[2] // 2, 0
    for n in lens.tolist():
        _rotate(x[at : at + n], table[:n, :half], table[:n, half:], out[at : at + n])
        at += n
    return out


def padded(x: Tensor, *, lens: Tensor, table: Tensor) -> Tensor:
    """The same, every sequence padded to the longest and its angles computed anew."""
    sizes, longest = lens.tolist(), int(lens.max())
    batch = torch.nn.utils.rnn.pad_sequence(list(torch.split(x, sizes)), batch_first=True)
    turned = torch.empty_like(batch)
    for b in range(len(sizes)):
        _rotate(batch[b], *_angles(x, 0, longest), turned[b])
    return torch.cat([turned[b, :n] for b, n in enumerate(sizes)])


def to_longest(x: Tensor, longest: int) -> Tensor:
    """One sequence (n, H, D), with angles for ``longest`` positions of which n are used."""
    out = torch.empty_like(x)
    cosine, sine = _angles(x, 0, longest)
    _rotate(x, cosine[: len(x)], sine[: len(x)], out)
    return out


def _angles(x: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines (positions, D / 2) in float32."""
    half = x.shape[2] // 2
    rates = BASE ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.arange(first, last, device=x.device, dtype=torch.float32)[:, None] * rates
    return angles.cos(), angles.sin()


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor, out: Tensor) -> None:
    """Write x (n, H, D), its two halves rotated by the angles of each position, to ``out``."""
    half = x.shape[2] // 2
    a, b = x[..., :half], x[..., half:]
    c, s = cosine[:, None], sine[:, None]
    out[..., :half] = a * c - b * s
    out[..., half:] = b * c + a * s
