"""Input tensors: seeded, made on the CPU in float32 so that every device and dtype sees the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .masks import allowed_by, bias


@dataclass(frozen=True)
class PagedCache:
    """``k``, ``v`` (num_blocks, page_size, heads_kv, head_dim), ``block_table`` (batch, max_blocks) int32,
    ``cache_seqlens`` (batch,) int32."""

    k: torch.Tensor
    v: torch.Tensor
    block_table: torch.Tensor
    cache_seqlens: torch.Tensor


class Maker:
    """Makes tensors from one seed; the order of calls is part of what they hold."""

    def __init__(self, seed: int, device: str) -> None:
        self._device = torch.device(device)
        self._torch = torch.Generator().manual_seed(seed)
        self._numpy = np.random.default_rng(seed)

    def normal(self, shape: Sequence[int], dtype: str) -> torch.Tensor:
        """Standard normal values, rounded to ``dtype``."""
        values = torch.randn(tuple(shape), generator=self._torch)
        return values.to(device=self._device, dtype=getattr(torch, dtype))

    def heads(
        self, batch: int, heads: int, length: int, dim: int, dtype: str, layout: str, *, shared: bool = False
    ) -> torch.Tensor:
        """(batch, heads, length, dim); memory order B,S,H,D for layout ``bshd``; ``shared`` is one head
        expanded over all (stride 0)."""
        if shared:
            return self.normal((batch, 1, length, dim), dtype).expand(batch, heads, length, dim)
        if layout == "bshd":
            return self.normal((batch, length, heads, dim), dtype).transpose(1, 2)
        return self.normal((batch, heads, length, dim), dtype)

    def mask(self, kind: str, batch: int, q_len: int, kv_len: int, dtype: str) -> torch.Tensor:
        """Boolean (True: attend) or additive mask that broadcasts to (batch, heads, q_len, kv_len)."""
        allowed = allowed_by(kind, batch, q_len, kv_len)
        if allowed is not None:
            return torch.from_numpy(allowed[:, None]).to(self._device)
        return torch.from_numpy(bias(q_len, kv_len)).to(device=self._device, dtype=getattr(torch, dtype))

    def offsets(self, counts: Sequence[int]) -> torch.Tensor:
        """``cu_seqlens``: int32 running sum with a leading zero, shape (len(counts) + 1,)."""
        return torch.tensor(np.concatenate(([0], np.cumsum(counts))), dtype=torch.int32, device=self._device)

    def paged_cache(
        self, kv_lens: Sequence[int], page_size: int, heads_kv: int, dims: tuple[int, int], dtype: str
    ) -> PagedCache:
        """A block pool as a server leaves it: pages in shuffled order, some unused. ``dims``: head sizes of K and V.

        Unused pages and the tail of each last page hold NaN: a kernel that lets them into its result shows it.
        Entries of the block table beyond a sequence name an unused page, which is valid to read and poisoned.
        """
        pages = [-(-n // page_size) for n in kv_lens]
        used = sum(pages)
        total = used + max(1, used // 8)
        order = self._numpy.permutation(total)
        table = np.full((len(kv_lens), max(1, *pages)), order[-1], dtype=np.int32)
        k, v = (self.normal((total, page_size, heads_kv, dim), dtype) for dim in dims)
        start = 0
        for row, (length, count) in enumerate(zip(kv_lens, pages, strict=True)):
            table[row, :count] = order[start : start + count]
            tail = length % page_size
            if tail:
                last = int(order[start + count - 1])
                k[last, tail:] = torch.nan
                v[last, tail:] = torch.nan
            start += count
        unused = torch.from_numpy(order[used:].astype(np.int64)).to(self._device)
        k[unused] = torch.nan
        v[unused] = torch.nan
        return PagedCache(
            k,
            v,
            torch.from_numpy(table).to(self._device),
            torch.tensor(list(kv_lens), dtype=torch.int32, device=self._device),
        )
