from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.measuring.counting import Span, pairs_and_keys, work
from harness.measuring.masks import MASKS, allowed_by


def slow(span: Span) -> tuple[int, int]:
    """Pair by pair."""
    offset = span.kv_len - span.q_len if span.causal_alignment == "bottom_right" else 0
    pairs, keys = 0, set()
    for i in range(span.q_len):
        for j in range(span.kv_len):
            seen = not span.causal or j <= i + offset
            seen = seen and (span.window is None or j > i + offset - span.window)
            if span.mask is not None:
                seen = seen and bool(np.broadcast_to(span.mask, (span.q_len, span.kv_len))[i, j])
            if seen:
                pairs += 1
                keys.add(j)
    return pairs, len(keys)


@given(
    q_len=st.integers(0, 12),
    kv_len=st.integers(0, 12),
    causal=st.booleans(),
    alignment=st.sampled_from(["bottom_right", "top_left"]),
    window=st.none() | st.integers(1, 14),
)
def test_count_is_brute_force_count(q_len: int, kv_len: int, causal: bool, alignment: str, window: int | None) -> None:
    span = Span(q_len, kv_len, causal, alignment, window)
    assert pairs_and_keys(span) == slow(span)


@given(
    q_len=st.integers(1, 9),
    kv_len=st.integers(1, 9),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 9),
    kind=st.sampled_from(MASKS),
)
def test_masks_are_counted(q_len: int, kv_len: int, causal: bool, window: int | None, kind: str) -> None:
    masks = allowed_by(kind, 3, q_len, kv_len)
    for mask in [None] if masks is None else masks:
        span = Span(q_len, kv_len, causal, "bottom_right", window, mask=mask)
        assert pairs_and_keys(span) == slow(span)


def test_values_of_another_size_and_stored_bytes_are_counted() -> None:
    span = [Span(2, 3)]
    plain = work(span, heads_q=4, heads_kv=2, head_dim=8, itemsize=2)
    assert plain == work(span, heads_q=4, heads_kv=2, head_dim=8, itemsize=2, head_dim_v=8, stored_itemsize=2)
    assert plain.flops == 4 * 8 * 4 * 6 and plain.bytes == 2 * 8 * (2 * 4 * 2 + 2 * 2 * 3)
    odd = work(span, heads_q=4, heads_kv=2, head_dim=8, itemsize=2, head_dim_v=4, stored_itemsize=1)
    assert odd.flops == 2 * (8 + 4) * 4 * 6
    assert odd.bytes == (8 + 4) * 4 * 2 * 2 + (8 + 4) * 2 * 3 * 1, "q and o; used keys and values"


@given(q_len=st.integers(1, 20), kv_len=st.integers(1, 20), alignment=st.sampled_from(["bottom_right", "top_left"]))
def test_plain_bool_mask_leaves_no_visible_row_empty(q_len: int, kv_len: int, alignment: str) -> None:
    mask = allowed_by("bool", 1, q_len, kv_len)
    assert mask is not None
    for i in range(q_len):
        position = i + (kv_len - q_len if alignment == "bottom_right" else 0)
        if 0 <= position < kv_len:
            assert mask[0, i, position]


def test_masked_rows_are_masked() -> None:
    mask = allowed_by("bool:masked_rows", 1, 64, 64)
    assert mask is not None
    assert (~mask.any(axis=-1)).sum() == 2


def test_work_of_a_known_case() -> None:
    got = work([Span(4, 6, causal=True, count=2)], heads_q=6, heads_kv=2, head_dim=8, itemsize=2)
    pairs = 2 * (3 + 4 + 5 + 6)
    assert got.pairs == pairs
    assert got.query_tokens == 8
    assert got.flops == 4 * 8 * 6 * pairs
    assert got.bytes == 2 * (2 * 6 * 8 * 8 + 2 * 2 * 8 * 12)


def test_window_reads_only_the_keys_it_needs() -> None:
    got = work([Span(1, 1000, causal=True, window=16)], heads_q=1, heads_kv=1, head_dim=1, itemsize=1)
    assert (got.pairs, got.used_keys, got.bytes) == (16, 16, 2 + 32)


def test_backward_is_two_and_a_half_forwards() -> None:
    spans = [Span(3, 5), Span(0, 4), Span(2, 0)]
    forward = work(spans, heads_q=2, heads_kv=1, head_dim=4, itemsize=4)
    backward = work(spans, heads_q=2, heads_kv=1, head_dim=4, itemsize=4, backward=True)
    assert forward.pairs == 15
    assert backward.flops == 2.5 * forward.flops
    assert backward.bytes == 2 * forward.bytes
