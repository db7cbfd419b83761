"""The order in which a history is filled: every beginning of it is spread over the whole."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from harness.backfill import spread


def test_ends_first_then_middles() -> None:
    assert spread(0) == []
    assert spread(1) == [0]
    assert spread(2) == [1, 0]
    assert spread(9)[:5] == [8, 0, 4, 2, 6]


@given(st.integers(1, 300))
def test_each_once_and_gaps_shrink_evenly(n: int) -> None:
    order = spread(n)
    assert sorted(order) == list(range(n))
    for k in range(2, n + 1):
        taken = sorted(order[:k])
        gaps = [b - a for a, b in itertools.pairwise(taken)]
        assert max(gaps) <= 2 * max(1, (n - 1) // (1 << ((k - 1).bit_length() - 1)) + 1)
