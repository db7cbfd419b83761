"""Bisection under noise: right nearly always, at a few more measurements than without noise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.detection.bisection import Bisection, noise_free_measurements, simulate


def test_sixty_four_commits_one_percent_noise_five_percent_change() -> None:
    runs = 600
    right = used = 0
    for seed in range(runs):
        first_bad = 1 + seed % 64
        candidates, measurements = simulate(64, first_bad, np.log(1.05), 0.01, seed)
        right += candidates == [first_bad]
        used += measurements
    assert right / runs >= 0.99
    assert used / runs <= 3 * noise_free_measurements(64)


@given(st.integers(1, 80), st.data())
def test_without_noise_it_is_bisection(steps: int, data: st.DataObject) -> None:
    first_bad = data.draw(st.integers(1, steps))
    candidates, measurements = simulate(steps, first_bad, 0.3, 0.0, 0)
    assert candidates == [first_bad]
    assert measurements <= noise_free_measurements(steps) + 1


@given(st.integers(2, 40), st.data())
def test_what_does_not_build_is_told_not_guessed(steps: int, data: st.DataObject) -> None:
    first_bad = data.draw(st.integers(1, steps))
    skipped = data.draw(st.sets(st.integers(1, steps - 1), max_size=steps - 1))
    candidates, _ = simulate(steps, first_bad, 0.3, 0.0, 0, skipped)
    assert first_bad in candidates
    # Every neighbour in the answer is one that only skipped positions could have told apart.
    assert all(p in skipped for p in range(min(candidates), max(candidates)))


def test_one_spike_does_not_decide() -> None:
    search = Bisection(16, np.log(1.05))
    search.observe(8, np.log(1.9), 0.01)  # far off in the bad direction, though the truth is good
    for _ in range(3):
        search.observe(8, 0.0, 0.01)
    assert search.posterior()[:8].sum() < 0.01


@pytest.mark.parametrize(("steps", "effect"), [(0, 0.1), (4, 0.0), (4, float("nan"))])
def test_nonsense_is_refused(steps: int, effect: float) -> None:
    with pytest.raises(ValueError, match="needs"):
        Bisection(steps, effect)
