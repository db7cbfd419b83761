"""The oracle against a loop over single numbers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from kernels.attention import reference
from kernels.paged import reference as paged_reference

from .helpers import cumulative, naive, normal, qkv, ragged


def _mask(kind: str, q_len: int, kv_len: int) -> torch.Tensor | None:
    if kind == "none":
        return None
    keep = normal(2, 1, q_len, kv_len, seed=5) > 0
    keep[:, :, 0] = False
    return keep if kind == "bool" else normal(1, 4, q_len, kv_len, seed=6).masked_fill(~keep[:1], -torch.inf)


@pytest.mark.parametrize("q_len, kv_len", [(1, 1), (5, 5), (3, 7), (7, 3), (1, 6), (4, 0)])
@pytest.mark.parametrize("mask", ["none", "bool", "additive"])
def test_oracle_equals_the_loop(q_len: int, kv_len: int, mask: str) -> None:
    q, k, v = (x.double() for x in qkv(2, 4, 2, q_len, kv_len, 3))
    m = _mask(mask, q_len, kv_len)
    for causal, alignment, window, softcap in itertools.product(
        (False, True), ("bottom_right", "top_left"), (None, 1, 2), (None, 1.5)
    ):
        expected = naive(q, k, v, causal, alignment, window, softcap, m)
        found = reference.attention(
            q, k, v, causal=causal, causal_alignment=alignment, window=window, softcap=softcap, mask=m
        )
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_blocks_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = (x.double() for x in qkv(1, 2, 1, 70, 90, 4))
    options: dict[str, Any] = {"causal": True, "window": 20}
    whole = reference.attention(q, k, v, **options)
    monkeypatch.setattr(reference, "SCORE_BUDGET", 1)
    torch.testing.assert_close(reference.attention(q, k, v, **options), whole, rtol=1e-12, atol=1e-14)


def test_the_two_alignments_differ_where_lengths_do() -> None:
    q, k, v = qkv(1, 1, 1, 2, 5, 4)
    top = reference.attention(q, k, v, causal=True, causal_alignment="top_left")
    bottom = reference.attention(q, k, v, causal=True)
    torch.testing.assert_close(top[0, 0, 0], v[0, 0, 0].double())
    assert not torch.allclose(top, bottom)


def test_rows_without_keys_are_zero_and_their_gradients_finite() -> None:
    q, k, v = (x.double().requires_grad_() for x in qkv(1, 2, 2, 6, 4, 3))
    out = reference.attention(q, k, v, causal=True)
    assert torch.equal(out[:, :, :2], torch.zeros_like(out[:, :, :2]))
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    assert all(bool(torch.isfinite(g).all()) for g in grads)


def test_gradients_against_differences() -> None:
    q, k, v = (x.double().requires_grad_() for x in qkv(1, 2, 1, 4, 3, 2))
    assert torch.autograd.gradcheck(lambda *a: reference.attention(*a, causal=True, softcap=2.0, window=2), (q, k, v))


def test_unknown_alignment() -> None:
    with pytest.raises(ValueError, match="causal_alignment"):
        reference.attention(*qkv(1, 1, 1, 2, 2, 2), causal_alignment="middle")


def test_varlen_is_each_sequence_on_its_own() -> None:
    q_lens, kv_lens = [3, 0, 1, 4], [5, 2, 0, 2]
    q, k, v = normal(8, 4, 3), normal(9, 2, 3, seed=1), normal(9, 2, 3, seed=2)
    out = reference.varlen_attention(q, k, v, **ragged(q_lens, kv_lens), causal=True)
    a, b = cumulative(q_lens).tolist(), cumulative(kv_lens).tolist()
    for n in range(4):
        rows, keys = slice(a[n], a[n + 1]), slice(b[n], b[n + 1])
        one = naive(
            q[rows].transpose(0, 1)[None],
            k[keys].transpose(0, 1)[None],
            v[keys].transpose(0, 1)[None],
            True,
            "bottom_right",
            None,
            None,
            None,
        )
        torch.testing.assert_close(out[rows], one[0].transpose(0, 1), rtol=1e-6, atol=1e-7)


def test_paged_oracle_finds_keys_by_page_and_row() -> None:
    cache = torch.arange(5 * 2, dtype=torch.float32).view(5, 2, 1, 1)
    keys = paged_reference.used_keys(cache, [3, 0, 99], 3)
    assert keys.flatten().tolist() == [6.0, 7.0, 0.0]
