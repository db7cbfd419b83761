"""Explicit masks for backends whose own causal flag means something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, device


def keep_mask(q_len: int, kv_len: int, *, causal: bool, alignment: str, window: int | None, device: device) -> Tensor:
    """(q_len, kv_len) bool, True where the query may see the key. Made of comparisons of positions."""
    import torch

    offset = kv_len - q_len if alignment == "bottom_right" else 0
    position = torch.arange(offset, q_len + offset, device=device)[:, None]
    key = torch.arange(kv_len, device=device)[None, :]
    if window is None:
        return key <= position if causal else torch.ones(q_len, kv_len, dtype=torch.bool, device=device)
    keep = key > position - window
    return keep & (key <= position) if causal else keep


def combine(keep: Tensor | None, mask: Tensor | None, dtype: object) -> Tensor | None:
    """One mask of a structural one (bool) and the caller's (bool, or added to the scores)."""
    import torch

    if mask is not None and mask.dtype != torch.bool:
        assert isinstance(dtype, torch.dtype)
        mask = mask.to(dtype)
    if keep is None or mask is None:
        return mask if keep is None else keep
    if mask.dtype == torch.bool:
        return mask & keep
    return mask.masked_fill(~keep, float("-inf"))
