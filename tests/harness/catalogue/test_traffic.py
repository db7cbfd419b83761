"""Batches in steps, and ranks of quantiles against scipy."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.catalogue.traffic import Traffic, drawn, quantile_ranks, schedule


@given(st.integers(1, 20), st.floats(0.05, 20.0), st.integers(0, 99), st.integers(1, 5), st.integers(1, 4))
def test_every_request_gets_its_tokens_in_turn(requests: int, rate: float, seed: int, new: int, most: int) -> None:
    traffic = Traffic(requests, rate, seed, (8, 16), new, heavy=0.0)
    plan = schedule(traffic, most)
    assert plan == schedule(traffic, most)
    assert sum(n > 0 for row in plan.steps for n in row) == requests * new
    assert all(any(row) and len(row) == most for row in plan.steps), "no step is empty"
    starts = Counter(int(n) for n in drawn(traffic)[1])
    assert sum(sum(starts[n - i] for i in range(new)) > 0 for row in plan.steps for n in row if n) == requests * new
    assert len(plan.waits) == requests and plan.waits == sorted(plan.waits, key=lambda w: w[1]), (
        "first come first served"
    )
    assert all(0 <= waits <= given < len(plan.steps) for waits, given in plan.waits)


@pytest.mark.parametrize("n", [1, 5, 40, 368, 3000])
@pytest.mark.parametrize("q", [0.5, 0.95, 0.99])
def test_ranks_are_those_of_the_binomial_distribution(n: int, q: float) -> None:
    assert quantile_ranks(n, q) == (int(stats.binom.ppf(0.025, n, q)), int(stats.binom.ppf(0.975, n, q)) + 1)
