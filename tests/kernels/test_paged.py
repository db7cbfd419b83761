"""Paged backends and the block pool, with NaN in everything that must not be read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import reference as dense
from kernels.paged import paged_attention, reference
from kernels.paged.pool import BlockPool, OutOfBlocks
from kernels.registry import Unsupported

from .helpers import DTYPES, cumulative, excess, normal, ragged

BACKENDS = ("paged", "paged_gather")
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def case(
    q_lens: list[int],
    kv_lens: list[int],
    page_size: int,
    heads: tuple[int, int] = (4, 2),
    head_dim: int = 16,
    dtype: str = "float32",
) -> tuple[Three, dict[str, Any], tuple[torch.Tensor, torch.Tensor]]:
    """((q, k_cache, v_cache), options, (k, v) end to end): shuffled pages, the unused ones and tails NaN."""
    kind = DTYPES[dtype]
    q = normal(sum(q_lens), heads[0], head_dim, dtype=kind, seed=1)
    k = normal(sum(kv_lens), heads[1], head_dim, dtype=kind, seed=2)
    v = normal(sum(kv_lens), heads[1], head_dim, dtype=kind, seed=3)
    blocks = sum(-(-n // page_size) for n in kv_lens) + 3
    pool = BlockPool(blocks, page_size, heads[1], head_dim, dtype=kind, poison=True, seed=len(kv_lens))
    starts = cumulative(kv_lens).tolist()
    for n in range(len(kv_lens)):
        pool.allocate(n)
        pool.append(n, k[starts[n] : starts[n + 1]], v[starts[n] : starts[n + 1]])
    table, sizes = pool.block_table(range(len(kv_lens)), unused=-1)
    options = {
        "block_table": table,
        "cache_seqlens": sizes,
        "cu_seqlens_q": cumulative(q_lens),
        "max_seqlen_q": max(q_lens, default=0),
    }
    return (q, pool.k_cache, pool.v_cache), options, (k, v)


def check(backend: str, made: Any, q_lens: list[int], kv_lens: list[int], **rule: Any) -> None:
    (q, k_cache, v_cache), options, (k, v) = made
    out = paged_attention(q, k_cache, v_cache, backend=backend, **options, **rule)
    exact = dense.varlen_attention(q, k, v, **ragged(q_lens, kv_lens), **rule)
    low = dense.varlen_attention(q, k, v, **ragged(q_lens, kv_lens), **rule, dtype=q.dtype)
    assert out.dtype == q.dtype
    assert excess(out, exact, low) <= 1
    assert torch.equal(reference.paged_attention(q, k_cache, v_cache, **options, **rule), exact)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("page_size", [1, 16, 128, 256])
@pytest.mark.parametrize("dtype", list(DTYPES))
def test_prefill_chunk_and_decode_in_one_batch(backend: str, page_size: int, dtype: str) -> None:
    q_lens, kv_lens = [130, 1, 4, 0, 1, 3], [130, 257, 700, 9, 1, 0]
    made = case(q_lens, kv_lens, page_size, dtype=dtype)
    check(backend, made, q_lens, kv_lens, causal=True)
    check(backend, made, q_lens, kv_lens, causal=False)
    check(backend, made, q_lens, kv_lens, causal=True, window=100)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kv_len", [511, 512, 513, 1024, 1025])
def test_lengths_around_a_chunk(backend: str, kv_len: int) -> None:
    for q_len in (1, 4):
        check(backend, case([q_len], [kv_len], 16), [q_len], [kv_len], causal=True)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    lens=st.lists(st.tuples(st.integers(0, 140), st.integers(0, 300)), min_size=1, max_size=4),
    page_size=st.integers(1, 256),
    ratio=st.sampled_from([1, 5, 7, 12]),
    causal=st.booleans(),
    window=st.sampled_from([None, 1, 60]),
    softcap=st.sampled_from([None, 2.0]),
)
def test_any_batch(
    backend: str,
    lens: list[tuple[int, int]],
    page_size: int,
    ratio: int,
    causal: bool,
    window: int | None,
    softcap: float | None,
) -> None:
    q_lens, kv_lens = [a for a, _ in lens], [b for _, b in lens]
    made = case(q_lens, kv_lens, page_size, heads=(ratio, 1), head_dim=8)
    if softcap is not None and backend == "paged_gather":
        with pytest.raises(Unsupported, match="softcap"):
            check(backend, made, q_lens, kv_lens, causal=causal, softcap=softcap)
        return
    check(backend, made, q_lens, kv_lens, causal=causal, window=window, softcap=softcap)


def test_the_poison_is_really_there() -> None:
    (_, k_cache, _), options, _ = case([1], [5], 4)
    used = options["block_table"][0]
    assert bool(torch.isnan(k_cache).any(dim=(1, 2, 3)).sum() == k_cache.shape[0] - 1)
    assert bool(torch.isfinite(k_cache[used[0]]).all())
    assert bool(torch.isnan(k_cache[used[1], 1:]).all())


def test_pool_hands_out_takes_back_and_runs_out() -> None:
    pool = BlockPool(4, 2, 1, 1, poison=True)
    pool.allocate("a")
    pool.append("a", torch.ones(3, 1, 1), torch.ones(3, 1, 1))
    assert (pool.free_blocks, pool.length("a")) == (2, 3)
    pool.append("a", torch.full((1, 1, 1), 2.0), torch.ones(1, 1, 1))
    assert pool.free_blocks == 2
    pool.allocate("b")
    with pytest.raises(OutOfBlocks, match="3 blocks needed"):
        pool.append("b", torch.ones(5, 1, 1), torch.ones(5, 1, 1))
    assert (pool.free_blocks, pool.length("b")) == (2, 0)
    table, sizes = pool.block_table(["a", "b"], unused=7)
    assert sizes.tolist() == [4, 0]
    assert table[1].tolist() == [7, 7]
    assert reference.used_keys(pool.k_cache, table[0].tolist(), 4).flatten().tolist() == [1, 1, 1, 2]
    pool.free("a")
    assert pool.free_blocks == 4
    assert bool(torch.isnan(pool.k_cache).all())
    with pytest.raises(KeyError):
        pool.free("a")
    with pytest.raises(ValueError, match="already"):
        pool.allocate("b")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=30), st.integers(1, 5))
def test_pool_never_shares_or_loses_a_block(steps: list[tuple[int, int]], page_size: int) -> None:
    pool = BlockPool(12, page_size, 1, 1)
    lengths: dict[int, int] = {}
    for sequence, amount in steps:
        if amount == 0 and sequence in lengths:
            pool.free(sequence)
            del lengths[sequence]
            continue
        if sequence not in lengths:
            pool.allocate(sequence)
            lengths[sequence] = 0
        rows = torch.arange(lengths[sequence], lengths[sequence] + amount, dtype=torch.float32).view(-1, 1, 1)
        try:
            pool.append(sequence, rows, rows)
        except OutOfBlocks:
            continue
        lengths[sequence] += amount
    names = list(lengths)
    table, sizes = pool.block_table(names)
    used = [b for row, n in zip(table.tolist(), sizes.tolist(), strict=True) for b in row[: -(-n // page_size)]]
    assert len(used) == len(set(used))
    assert len(used) + pool.free_blocks == 12
    for row, name in zip(table.tolist(), names, strict=True):
        keys = reference.used_keys(pool.k_cache, row, lengths[name]).flatten().tolist()
        assert keys == list(range(lengths[name]))
