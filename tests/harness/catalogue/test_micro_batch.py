"""The cache model against a naive one; the controller comes to rest whatever the cache does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.catalogue import lru
from harness.catalogue.micro_batch import Controller, Reported, at_rest, drive, sizes_between

RATES = st.lists(st.floats(0, 1), min_size=8, max_size=8)


@given(st.lists(st.integers(0, 40), max_size=200), st.sampled_from([(1, 4), (4, 1), (2, 3), (8, 2)]))
def test_the_model_is_a_list_in_order_of_use(lines: list[int], shape: tuple[int, int]) -> None:
    sets, ways = shape
    made = lru.LRU(sets * ways * 64, ways)
    held: list[list[int]] = [[] for _ in range(sets)]
    for one in lines:
        mine = held[one % sets]
        assert made.touch([one]) == (one not in mine)
        if one in mine:
            mine.remove(one)
        mine.append(one)
        del mine[:-ways]
    assert made.accesses == len(lines)


def test_what_fits_misses_nothing_the_second_time_and_what_does_not_always_does() -> None:
    made = lru.LRU(64 * 64, 64)
    made.touch(range(64))
    assert made.touch(range(64)) == 0
    assert lru.LRU(64 * 64, 64).touch([*range(65)] * 3) == 3 * 65, "one line more than fits, in turns"
    with pytest.raises(ValueError, match="no whole number of sets"):
        lru.LRU(1000)


def test_slices_reuse_weights_until_activations_do_not_fit() -> None:
    rates = {}
    for size in sizes_between(1, 32):
        cache = lru.LRU(1 << 16)
        for _ in range(2):
            rates[size] = lru.slice_miss_rate(cache, size, layers=4, weight_lines=256, sample_lines=64)
    assert rates[1] > rates[2] > rates[4] < rates[8]


@given(RATES, st.sampled_from(sizes_between()))
def test_it_comes_to_rest_and_never_swings(rates: list[float], start: int) -> None:
    by_size = dict(zip(sizes_between(), rates, strict=True))
    made = Controller(start)
    sizes = drive(made, by_size.__getitem__, 500)
    assert at_rest(sizes, 100) and made.moves <= 130
    assert set(sizes) <= set(by_size)
    rest = sizes[-1]
    # Below the high mark, or where no other size saves a fifth of the misses.
    assert by_size[rest] <= made.high or min(rates) > 0.8 * by_size[rest] * (1 - 1e-9)


@given(RATES, st.sampled_from(sizes_between()), st.integers(0, 1000))
def test_scattered_samples_do_not_make_it_swing(rates: list[float], start: int, seed: int) -> None:
    by_size, rng = dict(zip(sizes_between(), rates, strict=True)), random.Random(seed)
    made = Controller(start)
    sizes = drive(made, lambda s: min(1.0, by_size[s] * rng.uniform(0.9, 1.1)), 600)
    assert at_rest(sizes, 100) and made.moves <= 150


def test_three_samples_in_a_row_and_bounds() -> None:
    made = Controller(4, least=2, most=8)
    assert [made.sample(x) for x in (0.5, 0.5, 0.01, 0.5, 0.5)] == [4] * 5, "never three in a row"
    assert made.sample(0.5) == 2
    assert [made.sample(0.05) for _ in range(6)] == [2] * 6, "between the marks"
    assert [Controller(8, most=8).sample(0.0) for _ in range(4)] == [8] * 4
    with pytest.raises(ValueError, match="is no share"):
        made.sample(1.5)
    with pytest.raises(ValueError, match="needs 0 <= low"):
        Controller(200)


def test_another_regime_opens_what_was_closed() -> None:
    before = {4: 0.01, 8: 0.5, 16: 0.6}
    made = Controller(8, least=4, most=16)
    assert drive(made, before.__getitem__, 40)[-1] == 4
    after = {4: 0.0, 8: 0.01, 16: 0.02}
    assert drive(made, after.__getitem__, 40)[-1] == 16


def test_the_reported_rule_swings_for_ever_and_falls_to_one() -> None:
    cliff = {s: 0.01 if s < 8 else 0.2 for s in sizes_between()}
    assert not at_rest(drive(Reported(64), cliff.__getitem__, 400))
    assert [drive(Controller(s), cliff.__getitem__, 400)[-1] for s in (64, 16, 1)] == [4] * 3
    weights = {s: min(1.0, 0.9 / s + 0.08) for s in sizes_between()}
    assert drive(Reported(64), weights.__getitem__, 400)[-1] < 64
    again = drive(Controller(1), weights.__getitem__, 400)[-1]
    assert again > 1 and weights[again] < weights[drive(Reported(1), weights.__getitem__, 400)[-1]]


def test_a_counter_that_cannot_count_says_so() -> None:
    got = lru.counted_miss_rate(["true"])
    assert got is None or 0 <= got <= 1
