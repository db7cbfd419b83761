"""Block pool: pages of a K/V cache handed out, filled and taken back, as a serving engine does."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor


class OutOfBlocks(RuntimeError):
    """The pool has too few free blocks. Nothing was changed."""


class BlockPool:
    """``num_blocks`` pages of ``page_size`` keys, shared by sequences.

    ``k_cache`` and ``v_cache`` are (num_blocks, page_size, heads_kv, head_dim). Free blocks are handed out in a
    shuffled order, so that neighbours in a sequence are not neighbours in memory. With ``poison`` all that
    was not written is NaN, and so are freed blocks.
    """

    def __init__(
        self,
        num_blocks: int,
        page_size: int,
        heads_kv: int,
        head_dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        seed: int = 0,
        poison: bool = False,
    ) -> None:
        if min(num_blocks, page_size, heads_kv, head_dim) < 1:
            raise ValueError("num_blocks, page_size, heads_kv and head_dim must be at least 1")
        self.page_size = page_size
        self._fill = float("nan") if poison else 0.0
        shape = (num_blocks, page_size, heads_kv, head_dim)
        self.k_cache = torch.full(shape, self._fill, dtype=dtype, device=device)
        self.v_cache = torch.full(shape, self._fill, dtype=dtype, device=device)
        order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(seed))
        self._free: list[int] = order.tolist()
        self._tables: dict[Hashable, list[int]] = {}
        self._lengths: dict[Hashable, int] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks that no sequence holds."""
        return len(self._free)

    def length(self, sequence: Hashable) -> int:
        """Keys of a sequence; ``KeyError`` where it was never allocated."""
        return self._lengths[sequence]

    def allocate(self, sequence: Hashable) -> None:
        """Begin an empty sequence. ``ValueError`` where it exists."""
        if sequence in self._tables:
            raise ValueError(f"sequence {sequence!r} is in the pool already")
        self._tables[sequence], self._lengths[sequence] = [], 0

    def append(self, sequence: Hashable, k: Tensor, v: Tensor) -> None:
        """Write keys and values of (n, heads_kv, head_dim) at the end of a sequence.

        Takes blocks as needed; raises :class:`OutOfBlocks` before anything is written.
        """
        expected = self.k_cache.shape[2:]
        if k.shape != v.shape or k.shape[1:] != expected:
            raise ValueError(
                f"k and v must be (n, {expected[0]}, {expected[1]}), not {tuple(k.shape)}, {tuple(v.shape)}"
            )
        table, begin = self._tables[sequence], self._lengths[sequence]
        end = begin + k.shape[0]
        needed = -(-end // self.page_size) - len(table)
        if needed > len(self._free):
            raise OutOfBlocks(f"{needed} blocks needed for {k.shape[0]} keys, {len(self._free)} free")
        table.extend(self._free.pop() for _ in range(needed))
        if end > begin:
            device = self.k_cache.device
            keys = torch.arange(begin, end, device=device)
            pages = torch.tensor(table, device=device)[keys // self.page_size]
            self.k_cache[pages, keys % self.page_size] = k.to(self.k_cache)
            self.v_cache[pages, keys % self.page_size] = v.to(self.v_cache)
        self._lengths[sequence] = end

    def free(self, sequence: Hashable) -> None:
        """Give the blocks of a sequence back; ``KeyError`` where it is not there."""
        table = self._tables.pop(sequence)
        del self._lengths[sequence]
        if table:
            self.k_cache[table] = self._fill
            self.v_cache[table] = self._fill
        self._free.extend(table)

    def block_table(self, sequences: Sequence[Hashable], *, unused: int = 0) -> tuple[Tensor, Tensor]:
        """(block_table (B, max_blocks) int32, cache_seqlens (B,) int32); ``unused`` fills the rest of rows."""
        rows = [self._tables[s] for s in sequences]
        table = torch.full((len(rows), max([1, *map(len, rows)])), unused, dtype=torch.int32)
        for n, row in enumerate(rows):
            table[n, : len(row)] = torch.tensor(row, dtype=torch.int32)
        sizes = torch.tensor([self._lengths[s] for s in sequences], dtype=torch.int32)
        return table.to(self.k_cache.device), sizes.to(self.k_cache.device)
