"""Decode steps with a token-level mask, made once, made in each step, or written into a reused buffer."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def dynamic(q: Tensor, k: Tensor, v: Tensor, *, seen: Tensor) -> Tensor:
    """Steps of decoding, each against the keys up to its own: (B, H, steps, D). The mask is made in each step.

    Args:
        q: (B, H, steps, D); query i stands at key L - steps + i. k, v: (B, H, L, D).
        seen: (B, L) bool on the host; whether a token may be looked at. Each query's own may.
    """
    out, steps, length = torch.empty_like(q), q.shape[2], k.shape[2]
    for i in range(steps):
        out[:, :, i : i + 1] = _attend(q, k, v, i, _made(seen, length - steps + i, q))
    return out


def static(q: Tensor, k: Tensor, v: Tensor, *, seen: Tensor) -> Tensor:
    """The same with the masks of all steps made at once: shapes as in :func:`dynamic`."""
    out, steps, length = torch.empty_like(q), q.shape[2], k.shape[2]
    here = seen.to(q.device)
    position = torch.arange(length, device=q.device)
    last = torch.arange(length - steps, length, device=q.device)[:, None]
    allowed = (position <= last) & (here[:, None, :] | (position == last))
    masks = torch.zeros(allowed.shape, dtype=q.dtype, device=q.device).masked_fill_(~allowed, -math.inf)
    for i in range(steps):
        out[:, :, i : i + 1] = _attend(q, k, v, i, masks[:, None, i : i + 1])
    return out


def pooled(q: Tensor, k: Tensor, v: Tensor, *, seen: Tensor) -> Tensor:
    """The same with one mask on the device that each step overwrites from one buffer on the host, pinned where the
    device is a GPU: shapes as in :func:`dynamic`."""
    return under(Pool(seen, q), q, k, v)


def under(pool: Pool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The steps under the masks of a pool that has given none yet."""
    out, steps, length = torch.empty_like(q), q.shape[2], k.shape[2]
    for i in range(steps):
        out[:, :, i : i + 1] = _attend(q, k, v, i, pool.at(length - steps + i))
    return out


class Pool:
    """One host buffer and one mask (B, 1, 1, L) on the device, for positions in rising order."""

    def __init__(self, seen: Tensor, like: Tensor) -> None:
        shape = (seen.shape[0], 1, 1, seen.shape[1])
        self._host = torch.full(shape, -math.inf, dtype=like.dtype, pin_memory=like.is_cuda)
        self._device = self._host if like.device.type == "cpu" else torch.empty(shape, dtype=like.dtype).to(like.device)
        # numpy writes into the buffer without passing torch; bfloat16, which it lacks, by its bits.
        raw = self._host.view(torch.int16) if like.dtype == torch.bfloat16 else self._host
        self._buffer = raw.numpy()[:, 0, 0]
        self._hidden = self._buffer[0, 0].copy()
        self._seen = seen.numpy()
        self._at = 0

    @property
    def hides(self) -> bool:
        """Whether any token is hidden."""
        return not bool(self._seen.all())

    def at(self, position: int) -> Tensor:
        """The mask of the query at ``position``, valid until the next one is asked for."""
        # The query before may have been the only one to look at its own token.
        self._buffer[:, self._at : position] = self._hidden
        new = slice(self._at, position)
        self._buffer[:, new][self._seen[:, new]] = 0
        self._buffer[:, position] = 0
        self._at = position
        if self._device is not self._host:
            # Waited for, since the next step writes into the same buffer.
            self._device.copy_(self._host, non_blocking=True)
            torch.cuda.current_stream(self._device.device).synchronize()
        return self._device


def _made(seen: Tensor, at: int, like: Tensor) -> Tensor:
    """(B, 1, 1, L) for the query at position ``at``, by operators of the device."""
    here = seen.to(like.device)
    position = torch.arange(here.shape[1], device=like.device)
    allowed = (position <= at) & (here | (position == at))
    hidden = torch.logical_not(allowed)
    mask = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
    return mask.masked_fill(hidden, -math.inf)[:, None, None, :]


def _attend(q: Tensor, k: Tensor, v: Tensor, i: int, mask: Tensor) -> Tensor:
    return scaled_dot_product_attention(q[:, :, i : i + 1], k, v, attn_mask=mask)
