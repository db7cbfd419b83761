"""The balanced partition: exactly as many parts as asked for, and what it promises of the heaviest."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.balance import balanced, deviation, heaviest, in_turn, longest_first
from harness.model import Case
from harness.rotation import Costs
from harness.sharding import Shard, outlook, part
from tests.db.factory import make_case

WEIGHTS = st.lists(st.one_of(st.integers(0, 4096).map(float), st.floats(0, 1e6)), max_size=40)


@given(WEIGHTS, st.integers(1, 12))
def test_exactly_so_many_parts_and_everything_once(weights: list[float], parts: int) -> None:
    found = balanced(weights, parts)
    assert len(found) == parts
    assert sorted(i for held in found for i in held) == list(range(len(weights)))
    assert all(held == sorted(held) for held in found)
    assert all(found) or len(weights) < parts
    assert found == balanced(list(weights), parts)


@given(WEIGHTS, st.integers(1, 12))
def test_never_worse_than_in_turn_nor_than_longest_first(weights: list[float], parts: int) -> None:
    top, slack = heaviest(weights, balanced(weights, parts)), 1e-6
    assert top <= heaviest(weights, in_turn(len(weights), parts)) + slack
    assert top <= heaviest(weights, longest_first(weights, parts)) + slack
    assert top <= sum(weights) / parts + max(weights, default=0.0) + slack


@given(st.lists(st.integers(0, 50).map(float), min_size=1, max_size=7), st.integers(1, 3))
def test_within_the_bound_of_the_best_possible(weights: list[float], parts: int) -> None:
    best = sum(weights)
    for way in itertools.product(range(parts), repeat=len(weights)):
        loads = [0.0] * parts
        for w, at in zip(weights, way, strict=True):
            loads[at] += w
        best = min(best, max(loads))
    assert heaviest(weights, balanced(weights, parts)) <= (4 / 3 - 1 / (3 * parts)) * best + 1e-6


def test_longest_first_alone_can_be_worse_than_in_turn() -> None:
    weights = [2.0, 3.0, 2.0, 3.0, 2.0]
    assert heaviest(weights, longest_first(weights, 2)) == 7 > heaviest(weights, in_turn(5, 2)) == 6
    assert heaviest(weights, balanced(weights, 2)) == 6


def test_what_cannot_be_balanced() -> None:
    for weights, parts in (([1.0], 0), ([-1.0], 1), ([float("nan")], 1), ([float("inf")], 2)):
        with pytest.raises(ValueError, match=r"give at least 1|negative or not finite"):
            balanced(weights, parts)
    assert deviation([0.0, 0.0], balanced([0.0, 0.0], 2)) == 0.0
    assert deviation([3.0, 1.0], [[0], [1]]) == pytest.approx(0.5)


@given(st.lists(st.floats(0.01, 600), min_size=4, max_size=40), st.integers(2, 4))
def test_shards_are_spread_by_it(seconds: list[float], count: int) -> None:
    cases: list[Case] = [make_case(i) for i in range(len(seconds))]
    known = Costs({c.key: s for c, s in zip(cases, seconds, strict=True)}, overhead_s=0.0)
    loads = [sum(map(known.of, part(cases, Shard(k + 1, count), known))) for k in range(count)]
    assert max(loads) == pytest.approx(heaviest(seconds, balanced(seconds, count)))
    assert f"the longest of {count} {max(loads):.0f} s" in outlook(cases, Shard(1, count), known)
