from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.measuring.operations import OPERATIONS, Inputs
from harness.measuring.params import ParamError, lengths
from harness.model import Scalar

from .conftest import SMALL

PAGED: dict[str, Scalar] = {**SMALL, "batch": 4, "page_size": 8, "q_lens": "1,3,0,2", "kv_lens": "9,3,0,24"}
VARLEN = {k: v for k, v in PAGED.items() if k != "page_size"}


def made(operation: str, params: dict[str, Scalar], seed: int = 0) -> Inputs:
    return OPERATIONS[operation].inputs(params, seed, "cpu")


@pytest.mark.parametrize(
    ("operation", "params"), [("attention", SMALL), ("varlen_attention", VARLEN), ("paged_attention", PAGED)]
)
def test_inputs_depend_on_workload_and_seed_only(operation: str, params: dict[str, Scalar]) -> None:
    torch.manual_seed(7)
    first = made(operation, params)
    torch.manual_seed(8)
    again, other = made(operation, {**params, "direction": "bwd"}), made(operation, params, seed=1)
    for name, tensor in first.tensors.items():
        assert torch.equal(tensor.view(torch.int32), again.tensors[name].view(torch.int32))
        assert not torch.equal(tensor.nan_to_num(), other.tensors[name].nan_to_num())


def test_attention_shapes_and_layouts() -> None:
    params = {**SMALL, "batch": 2, "heads_q": 6, "heads_kv": 2, "q_len": 3, "kv_len": 5, "dtype": "float16"}
    plain = made("attention", params).tensors
    assert plain["q"].shape == (2, 6, 3, 8) and plain["q"].dtype == torch.float16 and plain["q"].is_contiguous()
    assert plain["k"].shape == plain["v"].shape == (2, 2, 5, 8)
    assert made("attention", {**params, "layout": "bshd"}).tensors["q"].transpose(1, 2).is_contiguous()
    expanded = made("attention", {**params, "layout": "expanded_kv"})
    assert expanded.tensors["k"].stride(1) == 0
    assert expanded.bytes == 2 * (2 * 6 * 3 * 8 + 2 * 2 * 5 * 8)


@pytest.mark.parametrize(
    ("operation", "params"), [("attention", SMALL), ("varlen_attention", VARLEN), ("paged_attention", PAGED)]
)
def test_keys_and_values_of_other_sizes_and_types(operation: str, params: dict[str, Scalar]) -> None:
    q, k, v = made(operation, {**params, "head_dim_v": 4, "kv_dtype": "float8_e4m3fn"}).tensors.values()
    assert (q.shape[-1], k.shape[-1], v.shape[-1]) == (8, 8, 4)
    assert q.dtype == torch.float32 and k.dtype == v.dtype == torch.float8_e4m3fn
    assert bool(k.float().isnan().any()) == bool(v.float().isnan().any()) == (operation == "paged_attention")
    with pytest.raises(ParamError, match="kv_dtype"):
        made(operation, {**params, "kv_dtype": "int4"})


def test_options_are_passed_only_where_set() -> None:
    assert made("attention", SMALL).options == {"causal": True}
    more: dict[str, Scalar] = {**SMALL, "window": 3, "softcap": 20.0, "causal_alignment": "top_left", "mask": "bool"}
    options = made("attention", more).options
    mask = options.pop("mask")
    assert options == {"causal": True, "window": 3, "softcap": 20.0, "causal_alignment": "top_left"}
    assert mask.shape == (1, 1, 16, 16) and mask.dtype == torch.bool


def test_varlen_offsets() -> None:
    got = made("varlen_attention", VARLEN)
    assert got.options["cu_seqlens_q"].tolist() == [0, 1, 4, 4, 6]
    assert got.options["cu_seqlens_k"].tolist() == [0, 9, 12, 12, 36]
    assert got.options["cu_seqlens_k"].dtype == torch.int32
    assert (got.options["max_seqlen_q"], got.options["max_seqlen_k"]) == (3, 24)
    assert got.tensors["q"].shape == (6, 2, 8) and got.tensors["k"].shape == (36, 2, 8)


@given(
    kv_lens=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    page_size=st.sampled_from([1, 3, 16]),
    seed=st.integers(0, 3),
)
def test_pages_are_disjoint_and_everything_unused_is_poisoned(kv_lens: list[int], page_size: int, seed: int) -> None:
    texts = {"q_lens": ",".join("0" for _ in kv_lens), "kv_lens": ",".join(map(str, kv_lens))}
    params: dict[str, Scalar] = {**SMALL, **texts, "batch": len(kv_lens), "page_size": page_size}
    got = made("paged_attention", params, seed)
    k, v, table = got.tensors["k_cache"], got.tensors["v_cache"], got.options["block_table"]
    assert table.dtype == got.options["cache_seqlens"].dtype == torch.int32
    assert got.options["cache_seqlens"].tolist() == kv_lens
    written = torch.zeros(k.shape[:2], dtype=torch.bool)
    used: list[int] = []
    for row, length in enumerate(kv_lens):
        pages = table[row, : -(-length // page_size)].tolist()
        used += pages
        for position in range(length):
            written[pages[position // page_size], position % page_size] = True
    assert len(set(used)) == len(used) < k.shape[0]
    for cache in (k, v):
        assert torch.equal(cache.isnan().all(dim=(2, 3)), ~written)
        assert torch.equal(cache.isnan().any(dim=(2, 3)), ~written)
    assert table.min() >= 0 and table.max() < k.shape[0]


def test_block_tables_are_shuffled() -> None:
    params: dict[str, Scalar] = {**SMALL, "page_size": 1, "q_lens": "1", "kv_lens": "64"}
    table = made("paged_attention", params).options["block_table"][0].tolist()
    assert sum(b == a + 1 for a, b in itertools.pairwise(table)) < 16


@pytest.mark.parametrize(
    ("operation", "change", "word"),
    [
        ("attention", {"q_len": None}, "q_len"),
        ("attention", {"q_len": True}, "q_len"),
        ("attention", {"causal": "yes"}, "causal"),
        ("attention", {"mask": "striped"}, "striped"),
        ("attention", {"window": 0}, "window"),
        ("varlen_attention", {"q_lens": "1,2"}, "2 lengths for batch 4"),
        ("varlen_attention", {"q_lens": "1,x,3,4"}, "1,x,3,4"),
        ("varlen_attention", {"kv_lens": "1,-2,3,4"}, "kv_lens"),
        ("paged_attention", {"page_size": 0}, "page_size"),
        ("paged_attention", {"q_lens": "10,3,0,2"}, "kv_lens"),
    ],
)
def test_bad_parameters_are_named(operation: str, change: dict[str, Any], word: str) -> None:
    base: dict[str, Any] = {"attention": SMALL, "varlen_attention": VARLEN, "paged_attention": PAGED}[operation]
    with pytest.raises(ParamError, match=word):
        made(operation, {**base, **change})


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8))
def test_lengths_round_trip(values: list[int]) -> None:
    assert lengths({"batch": len(values), "q_lens": ",".join(map(str, values))}, "q_lens") == tuple(values)


def test_one_sequence_may_be_a_number() -> None:
    assert lengths({"batch": 1, "q_lens": 17}, "q_lens") == (17,)
