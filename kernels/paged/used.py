"""What every walk over a paged cache needs: the sequences that do anything, and the keys that are really used."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor


def sequences(cache_seqlens: Tensor, cu_seqlens_q: Tensor) -> Iterator[tuple[int, int, int, int]]:
    """(n, begin, end, size) of sequences with queries [begin, end) and ``size`` keys; lengths are read on the host.

    Sequences without queries or without keys are left out: their rows of the output stay 0.
    """
    starts, sizes = cu_seqlens_q.tolist(), cache_seqlens.tolist()
    for n, size in enumerate(sizes):
        if starts[n] != starts[n + 1] and size:
            yield n, starts[n], starts[n + 1], size


def gather(cache: Tensor, pages: Tensor, length: int) -> Tensor:
    """(length, Hkv, D) of the given pages (used ones only), the tail of the last page cut off."""
    return cache.index_select(0, pages).flatten(0, 1)[:length]
