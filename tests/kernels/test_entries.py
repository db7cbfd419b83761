"""The public entries: clear errors, and no other backend than the one named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.attention import attention, reference, varlen_attention
from kernels.paged import paged_attention
from kernels.registry import UnknownBackend, Unsupported

from . import test_paged
from .helpers import cumulative, normal, qkv, ragged


def test_unknown_backend() -> None:
    with pytest.raises(UnknownBackend, match="segmented"):
        attention(*qkv(1, 1, 1, 2, 2, 4), backend="segmentd")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"q": normal(2, 3, 4)}, "q must have 4 dimensions"),
        ({"v": normal(2, 2, 7, 8)}, "k is .* and v .* equal"),
        ({"v": normal(2, 2, 6, 8).half()}, "v is float16 and k float32"),
        ({"v": normal(2, 2, 6, 8).to(torch.float8_e5m2)}, "v is float8_e5m2 and k float32"),
        ({"q": normal(1, 4, 5, 8)}, "batch of q is 1 and of k 2"),
        ({"q": normal(2, 4, 5, 9)}, "head_dim of q is 9"),
        ({"q": normal(2, 3, 5, 8)}, "heads_q 3 is not a multiple of heads_kv 2"),
        ({"q": normal(2, 4, 5, 8).half()}, "k is float32 and q float16"),
        ({"q": normal(2, 4, 5, 8).long()}, "q must be floating, not int64"),
        ({"window": 0}, "window must be at least 1"),
        ({"window": True}, "window must be at least 1"),
        ({"softcap": 0.0}, "softcap must be above 0"),
        ({"softcap": float("nan")}, "softcap must be above 0"),
        ({"causal_alignment": "left"}, "causal_alignment is one of"),
        ({"mask": torch.ones(5, 6, dtype=torch.int32)}, "mask must be bool or floating"),
        ({"mask": torch.ones(5, 7, dtype=torch.bool)}, "does not broadcast"),
        ({"mask": torch.ones(4, 5, 6, dtype=torch.bool)}, "does not broadcast"),
        ({"k": normal(2, 2, 6, 8).to("meta"), "v": normal(2, 2, 6, 8).to("meta")}, "k is on meta"),
    ],
)
def test_dense_arguments_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    q, k, v = qkv(2, 4, 2, 5, 6, 8)
    given: dict[str, Any] = {"q": q, "k": k, "v": v, "backend": "segmented"} | change
    with pytest.raises(ValueError, match=message):
        attention(**given)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"cu_seqlens_q": cumulative([2, 2])}, "cu_seqlens_q must rise from 0 to 5"),
        ({"cu_seqlens_q": torch.tensor([0, 6, 5], dtype=torch.int32)}, "must rise"),
        ({"cu_seqlens_q": cumulative([2, 3]).long()}, "must be int32"),
        ({"cu_seqlens_k": cumulative([6]), "max_seqlen_k": 6}, "2 sequences and cu_seqlens_k 1"),
        ({"max_seqlen_q": 2}, "sequence of 3, longer than the maximum given, 2"),
        ({"max_seqlen_k": 3}, "longer than the maximum given, 3"),
        ({"q": normal(5, 4)}, "q must have 3 dimensions"),
        ({"v": normal(7, 2, 8)}, "equal"),
        ({"q": normal(5, 4, 9)}, "head_dim"),
    ],
)
def test_ragged_arguments_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"q": normal(5, 4, 8), "k": normal(6, 2, 8), "v": normal(6, 2, 8)}
    given |= ragged([2, 3], [2, 4]) | {"backend": "segmented"}
    with pytest.raises(ValueError, match=message):
        varlen_attention(**(given | change))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"cache_seqlens": torch.tensor([5], dtype=torch.int32)}, "cache_seqlens 1"),
        ({"cache_seqlens": torch.tensor([5, 99], dtype=torch.int32)}, r"cache_seqlens\[1\] is 99"),
        ({"cache_seqlens": torch.tensor([5, -1], dtype=torch.int32)}, r"cache_seqlens\[1\] is -1"),
        ({"block_table": torch.full((2, 3), 50, dtype=torch.int32)}, r"block_table\[0\] names a block outside"),
        ({"block_table": torch.zeros(2, 3)}, "block_table must be int32 with 2"),
        ({"q": normal(3, 4, 9)}, "head_dim"),
        ({"q": normal(3, 3, 16)}, "multiple"),
        ({"v_cache": normal(1, 4, 2, 16)}, "equal"),
        ({"k_cache": normal(1, 4, 16)}, "k_cache must have 4"),
    ],
)
def test_paged_arguments_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    (q, k_cache, v_cache), options, _ = test_paged.case([1, 2], [5, 9], 4)
    given: dict[str, Any] = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "backend": "paged"} | options
    with pytest.raises(ValueError, match=message):
        paged_attention(**(given | change))


def test_values_of_another_size_and_eight_bits_are_done_or_refused_with_the_reason() -> None:
    q, k, v = qkv(2, 4, 2, 5, 6, 8)
    shorter, stored = v[..., :5].contiguous(), [x.to(torch.float8_e4m3fn) for x in (k, v)]
    out = attention(q, k, shorter, backend="sdpa_math", causal=True)
    torch.testing.assert_close(out.double(), reference.attention(q, k, shorter, causal=True), atol=1e-5, rtol=0)
    for backend in ("segmented", "sdpa_flash"):
        with pytest.raises(Unsupported, match="head_dim_v 5 is not head_dim 8"):
            attention(q, k, shorter, backend=backend)
        with pytest.raises(Unsupported, match="kv_dtype float8_e4m3fn"):
            attention(q, *stored, backend=backend)


def test_unused_table_entries_are_not_looked_at() -> None:
    tensors, options, _ = test_paged.case([1, 2], [5, 9], 4)
    assert options["block_table"].min() == -1
    assert bool(torch.isfinite(paged_attention(*tensors, backend="paged", **options)).all())


def test_paged_backward_is_refused() -> None:
    (q, k_cache, v_cache), options, _ = test_paged.case([1], [5], 4)
    with pytest.raises(Unsupported, match="forward only"):
        paged_attention(q.requires_grad_(), k_cache, v_cache, backend="paged", **options)
    with torch.no_grad():
        paged_attention(q, k_cache, v_cache, backend="paged", **options)


@pytest.mark.parametrize(
    "backend, expected", [("sdpa_math", "_attention_math"), ("sdpa_flash", "flash_attention_for_cpu")]
)
@pytest.mark.parametrize("q_len", [1, 5, 9])
def test_the_kernel_named_is_the_kernel_run(backend: str, expected: str, q_len: int) -> None:
    q, k, v = qkv(1, 4, 2, q_len, 9, 16)
    # Whatever the caller pinned around it must not leak in.
    with torch.profiler.profile() as profile, sdpa_kernel([SDPBackend.MATH]):
        attention(q, k, v, backend=backend, causal=True)
    names = {e.key for e in profile.key_averages() if e.key.startswith("aten::_scaled_dot_product")}
    assert len(names) == 1
    assert expected in names.pop()


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_a_pinned_kernel_that_cannot_run_raises() -> None:
    q, k, v = qkv(1, 1, 1, 4, 4, 8)
    k = k.transpose(2, 3).contiguous().transpose(2, 3)
    with pytest.raises(RuntimeError):
        attention(q, k, v, backend="sdpa_flash")
