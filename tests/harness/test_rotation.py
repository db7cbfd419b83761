"""What a night with a budget begins with; in the long run no case waits for ever."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.rotation import Costs, longest_ago, overhead, spread, within
from tests.db.factory import make_case

CASES = [make_case(i, backend) for i in range(4) for backend in ("x", "y")]


def test_never_measured_comes_first_then_the_oldest_and_workloads_stay_together() -> None:
    last = {c.key: 100.0 + i for i, c in enumerate(CASES)}
    last[CASES[6].key] = 5.0  # workload 3, backend x
    del last[CASES[3].key]  # workload 1, backend y
    order = longest_ago(CASES, last)
    assert order == [CASES[i] for i in (3, 2, 6, 7, 0, 1, 4, 5)]
    assert longest_ago(CASES, {}) == CASES


def test_the_first_that_fit_are_taken_and_at_least_one() -> None:
    costs = Costs({c.key: 2.0 for c in CASES}, overhead_s=0.0)
    assert within(CASES, costs, 10.0) == CASES[:4], "nine tenths of the budget are filled"
    assert within(CASES, costs, 0.0) == CASES[:1]
    assert within(CASES, costs, 1e6) == CASES
    assert within([], costs, 10.0) == []


def test_unknown_cases_cost_what_is_usual() -> None:
    costs = Costs({"a": 1.0, "b": 3.0, "c": 100.0}, overhead_s=0.5)
    assert costs.of(CASES[0]) == 3.5
    assert Costs().of(CASES[0]) > 0


def test_overhead_comes_from_the_last_run_within_reason() -> None:
    assert overhead(30.0, [1.0] * 10) == pytest.approx(2.0)
    assert overhead(5.0, [1.0] * 10) == overhead(0.0, []) > 0
    assert overhead(1e6, [1.0] * 10) <= 10.0, "a run gone on with next day says nothing of costs"


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 8), st.lists(st.floats(0.1, 30.0), min_size=8, max_size=8), st.floats(0.5, 40.0))
def test_every_case_has_its_turn(stopped_after: int, seconds: list[float], budget: float) -> None:
    """Each night selects what it thinks it can hold and is cut off after some of it; nothing starves."""
    costs = Costs(dict(zip((c.key for c in CASES), seconds, strict=True)))
    last: dict[str, float] = {}
    nights = 0
    while len(last) < len(CASES):
        nights += 1
        assert nights <= len(CASES)
        for i, case in enumerate(within(longest_ago(CASES, last), costs, budget)[:stopped_after]):
            last[case.key] = nights * 1e5 + i


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
