"""Adapters to CUDA libraries, against stand-ins that follow the libraries' documented calls on a CPU.

The libraries do not run without a GPU. What can go wrong on our side does: layout, window and alignment,
grouped heads, page tables, the shape of what is returned.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.attention import reference
from kernels.registry import get

from . import test_paged, test_varlen
from .helpers import qkv, ragged


def _window(causal: bool, window_size: tuple[Any, Any], unlimited: Any) -> dict[str, Any]:
    """(left, right) of the libraries -> our rule; a right end of 0 is causal."""
    left, right = window_size
    assert right in (unlimited, 0)
    return {"causal": causal or right == 0, "window": None if left == unlimited else left + 1}


def _library(unlimited: Any, returns_lse: bool, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with flash_attn_func, flash_attn_varlen_func and flash_attn_with_kvcache."""

    def give(out: Tensor, q: Tensor) -> Any:
        return (out.to(q.dtype), None) if returns_lse else out.to(q.dtype)

    def dense(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[Any, Any] = (unlimited, unlimited),
        softcap: float = 0.0,
    ) -> Any:
        rule = _window(causal, window_size, unlimited) | {"scale": softmax_scale, "softcap": softcap or None}
        out = reference.attention(*(x.transpose(1, 2) for x in (q, k, v)), **rule)
        return give(out.transpose(1, 2), q)

    def varlen(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor | None = None,
        cu_seqlens_k: Tensor | None = None,
        max_seqlen_q: int | None = None,
        max_seqlen_k: int | None = None,
        *,
        seqused_k: Tensor | None = None,
        page_table: Tensor | None = None,
        block_table: Tensor | None = None,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[Any, Any] = (unlimited, unlimited),
        softcap: float = 0.0,
    ) -> Any:
        rule = _window(causal, window_size, unlimited) | {"scale": softmax_scale, "softcap": softcap or None}
        table = block_table if page_table is None else page_table
        assert cu_seqlens_q is not None
        if table is None:
            assert cu_seqlens_k is not None
            sizes: dict[str, Any] = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
            return give(reference.varlen_attention(q, k, v, **sizes, max_seqlen_q=0, max_seqlen_k=0, **rule), q)
        from kernels.paged.reference import paged_attention

        lengths = seqused_k if cu_seqlens_k is None else cu_seqlens_k.diff()
        assert lengths is not None
        assert cu_seqlens_k is None or cu_seqlens_k.dtype == torch.int32
        out = paged_attention(
            q,
            k,
            v,
            block_table=table,
            cache_seqlens=lengths,
            cu_seqlens_q=cu_seqlens_q,
            max_seqlen_q=0,
            **rule,
        )
        return give(out, q)

    def kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, *, cache_seqlens: Tensor, **options: Any) -> Any:
        return varlen(q, k_cache, v_cache, seqused_k=cache_seqlens, **options)

    made: Any = types.ModuleType(module)
    made.flash_attn_func, made.flash_attn_varlen_func, made.flash_attn_with_kvcache = dense, varlen, kvcache
    if "." in module:
        parent = types.ModuleType(module.partition(".")[0])
        monkeypatch.setitem(sys.modules, parent.__name__, parent)
    monkeypatch.setitem(sys.modules, module, made)


LIBRARIES = {
    "flash_attn": (-1, False, "flash_attn"),
    "flash_attn_3": (-1, True, "flash_attn_interface"),
    "flash_attn_4": (None, True, "flash_attn.cute"),
}
RULES: list[dict[str, Any]] = [
    {"causal": False, "window": None, "softcap": None, "scale": None},
    {"causal": True, "window": None, "softcap": 2.0, "scale": 0.2},
    {"causal": True, "window": 3, "softcap": None, "scale": None},
    {"causal": False, "window": 4, "softcap": None, "scale": None},
]


@pytest.mark.parametrize("backend", list(LIBRARIES))
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_flash_attention_calls(backend: str, rule: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    _library(*LIBRARIES[backend], monkeypatch)
    q, k, v = qkv(2, 6, 2, 5, 9, 8)
    out = get(backend).load("attention")(q, k, v, **rule)
    torch.testing.assert_close(out, reference.attention(q, k, v, **rule, dtype=torch.float32))

    q_lens, kv_lens = [5, 1, 3], [9, 4, 3]
    ragged_q, ragged_k, ragged_v = test_varlen.tensors(q_lens, kv_lens, 6, 2, 8, "float32")
    out = get(backend).load("varlen_attention")(ragged_q, ragged_k, ragged_v, **ragged(q_lens, kv_lens), **rule)
    exact = reference.varlen_attention(
        ragged_q, ragged_k, ragged_v, **ragged(q_lens, kv_lens), **rule, dtype=torch.float32
    )
    torch.testing.assert_close(out, exact)

    (pq, pk, pv), options, (ks, vs) = test_paged.case(q_lens, kv_lens, 4, (6, 2), 8)
    out = get(backend).load("paged_attention")(pq, pk, pv, **options, **rule)
    exact = reference.varlen_attention(pq, ks, vs, **ragged(q_lens, kv_lens), **rule, dtype=torch.float32)
    torch.testing.assert_close(out, exact)


@pytest.mark.parametrize("backend", list(LIBRARIES))
def test_flash_attention_refuses_rather_than_compute_another_alignment(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _library(*LIBRARIES[backend], monkeypatch)
    q, k, v = qkv(1, 1, 1, 2, 5, 8)
    run = get(backend).load("attention")
    with pytest.raises(NotImplementedError, match="bottom-right"):
        run(q, k, v, causal=True, causal_alignment="top_left")
    with pytest.raises(NotImplementedError, match="mask"):
        run(q, k, v, mask=torch.ones(2, 5, dtype=torch.bool))
    run(q, k, v, causal_alignment="top_left")


class _Ragged:
    """BatchPrefillWithRaggedKVCacheWrapper, as documented."""

    def __init__(self, buffer: Tensor, layout: str) -> None:
        assert layout == "NHD"

    def _rule(self, options: dict[str, Any]) -> dict[str, Any]:
        left = options["window_left"]
        return {
            "causal": options["causal"],
            "window": None if left == -1 else left + 1,
            "softcap": options["logits_soft_cap"],
            "scale": options["sm_scale"],
        }

    def plan(
        self, q_starts: Tensor, k_starts: Tensor, heads_q: int, heads_kv: int, head_dim: int, **options: Any
    ) -> None:
        self.starts: dict[str, Any] = {"cu_seqlens_q": q_starts, "cu_seqlens_k": k_starts}
        self.shape, self.rule = (heads_q, heads_kv, head_dim), self._rule(options)

    def run(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        assert self.shape == (q.shape[1], k.shape[1], q.shape[2])
        out = reference.varlen_attention(q, k, v, **self.starts, max_seqlen_q=0, max_seqlen_k=0, **self.rule)
        return out.to(q.dtype)


class _Paged(_Ragged):
    """BatchPrefillWithPagedKVCacheWrapper: page numbers end to end, and how full each last page is."""

    def plan(  # type: ignore[override]
        self, q_starts: Tensor, starts: Tensor, pages: Tensor, last: Tensor, *rest: Any, **options: Any
    ) -> None:
        self.page_size = rest[3]
        self.q_starts, self.page_starts, self.pages, self.last = q_starts, starts, pages, last
        self.rule = self._rule(options)

    def run(self, q: Tensor, cache: tuple[Tensor, Tensor]) -> Tensor:  # type: ignore[override]
        keys = []
        starts = self.page_starts.tolist()
        for n, last in enumerate(self.last.tolist()):
            pages = self.pages[starts[n] : starts[n + 1]].long()
            size = (len(pages) - 1) * self.page_size + last
            keys.append([c[pages].flatten(0, 1)[:size] for c in cache])
        sizes = torch.tensor([0, *(len(k) for k, _ in keys)], dtype=torch.int32).cumsum(0)
        k, v = (torch.cat([pair[i] for pair in keys]) for i in (0, 1))
        given: dict[str, Any] = {
            "cu_seqlens_q": self.q_starts,
            "cu_seqlens_k": sizes,
            "max_seqlen_q": 0,
            "max_seqlen_k": 0,
        }
        return reference.varlen_attention(q, k, v, **given, **self.rule).to(q.dtype)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_flashinfer_calls(rule: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels.attention import flashinfer as adapter

    made: Any = types.ModuleType("flashinfer")
    made.BatchPrefillWithRaggedKVCacheWrapper, made.BatchPrefillWithPagedKVCacheWrapper = _Ragged, _Paged
    monkeypatch.setitem(sys.modules, "flashinfer", made)
    monkeypatch.setattr(adapter, "WORKSPACE", 1)
    adapter._wrapper.cache_clear()
    q, k, v = qkv(2, 6, 2, 5, 9, 8)
    out = adapter.attention(q, k, v, **rule)
    torch.testing.assert_close(out, reference.attention(q, k, v, **rule, dtype=torch.float32))

    q_lens, kv_lens = [5, 1, 3], [9, 4, 3]
    (pq, pk, pv), options, (ks, vs) = test_paged.case(q_lens, kv_lens, 4, (6, 2), 8)
    paged = adapter.paged_attention(pq, pk, pv, **options, **rule)
    exact = reference.varlen_attention(pq, ks, vs, **ragged(q_lens, kv_lens), **rule, dtype=torch.float32)
    torch.testing.assert_close(paged, exact)
    adapter._wrapper.cache_clear()


def test_torch_varlen_call(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.nn.attention.varlen as library

    from kernels.attention import varlen as adapter

    seen: list[dict[str, Any]] = []

    def stand_in(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seq_q: Tensor,
        cu_seq_k: Tensor,
        max_q: int,
        max_k: int,
        *,
        scale: float | None = None,
        window_size: tuple[int, int] = (-1, -1),
        enable_gqa: bool = False,
    ) -> Tensor:
        seen.append({"enable_gqa": enable_gqa})
        rule = _window(False, window_size, -1)
        starts: dict[str, Any] = {"cu_seqlens_q": cu_seq_q, "cu_seqlens_k": cu_seq_k}
        out = reference.varlen_attention(
            query, key, value, **starts, max_seqlen_q=max_q, max_seqlen_k=max_k, scale=scale, **rule
        )
        return out.to(query.dtype)

    q_lens, kv_lens = [5, 1, 3], [9, 4, 3]
    ragged_q, ragged_k, ragged_v = test_varlen.tensors(q_lens, kv_lens, 6, 2, 8, "float32")
    assert adapter._parameters() >= {"window_size", "scale"}
    monkeypatch.setattr(library, "varlen_attn", stand_in)
    for rule in RULES:
        if rule["softcap"] is not None:
            with pytest.raises(NotImplementedError, match="softcap"):
                adapter.varlen_attention(ragged_q, ragged_k, ragged_v, **ragged(q_lens, kv_lens), **rule)
            continue
        out = adapter.varlen_attention(ragged_q, ragged_k, ragged_v, **ragged(q_lens, kv_lens), **rule)
        exact = reference.varlen_attention(
            ragged_q, ragged_k, ragged_v, **ragged(q_lens, kv_lens), **rule, dtype=torch.float32
        )
        torch.testing.assert_close(out, exact)
    assert all(s["enable_gqa"] for s in seen)
