"""The sums of the strided read without shared memory, for devices that have none."""

from __future__ import annotations

import torch
from torch import Tensor

LANES = 32


def by_index(x: Tensor, *, stride: int, turns: int) -> Tensor:
    """As :func:`kernels.shared_stride.warp.strided`: (B, 32)."""
    lane = torch.arange(LANES, device=x.device)[:, None] * stride
    return x[:, (lane + torch.arange(turns, device=x.device)[None]) % x.shape[1]].sum(-1)


def by_views(x: Tensor, *, stride: int, turns: int) -> Tensor:
    """The same from prefix sums: what a lane reads is whole rounds of the words and a stretch of them."""
    words = x.shape[1]
    rounds, rest = divmod(turns, words)
    twice = torch.cat([x, x[:, :rest]], 1)
    out = torch.stack([twice[:, at : at + rest].sum(1) for at in (lane * stride % words for lane in range(LANES))], 1)
    return out + rounds * x.sum(1, keepdim=True) if rounds else out
