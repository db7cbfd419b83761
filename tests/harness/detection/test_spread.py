"""Growth of the noise: told where only the noise grew, and not for spikes, steps, drift or what noise does anyway."""

from __future__ import annotations

import numpy as np
import pytest

from harness.detection.batch import Array, Ints
from harness.detection.noise import fit_noise
from harness.detection.spread import Spread, grown_spread
from harness.detection.suite import judge_suite
from scripts.study import nights


def judged(x: Array) -> Spread:
    return grown_spread(x, fit_noise(x, pooled=True))


def ever(x: Array, series: int, first: int = 63) -> Ints:
    """Which of the first ``series`` rows are told on any night from ``first`` on, judged after each."""
    told = np.zeros(series, dtype=int)
    for n in range(first, x.shape[1] + 1):
        told += judged(x[:, max(0, n - 84) : n]).hit[:series]
    return told


@pytest.mark.parametrize("kind", nights.KINDS)
def test_noise_that_grew_is_told_once(kind: str) -> None:
    x = nights.suite(kind, 200, 85, np.random.default_rng(1))
    level = np.median(x[:10], axis=1, keepdims=True)
    x[:10, 60:] = level + 6 * (x[:10, 60:] - level)
    told = ever(x, 10)
    assert (told > 0).mean() >= 0.8
    assert told.max() == 1


@pytest.mark.parametrize("kind", nights.KINDS)
def test_what_is_no_growth_is_not_told(kind: str) -> None:
    x = nights.suite(kind, 200, 95, np.random.default_rng(2))
    x[:10, 80:] += 0.05
    x[10:20, 62:] += 0.002 * np.arange(33)
    x[20:30, [70, 82]] += 0.5
    assert ever(x, 200).sum() <= 1


def test_the_fold_and_the_nights_are_about_right() -> None:
    x = nights.suite("gaussian", 200, 78, np.random.default_rng(3))
    level = np.median(x[:20], axis=1, keepdims=True)
    x[:20, 60:] = level + 4 * (x[:20, 60:] - level)
    found = judged(x)
    assert 2.5 < np.median(found.fold[:20]) < 6
    assert np.median(found.nights[:20]) >= 14
    assert (found.evidence[:20] > 6).mean() > 0.8 and (found.evidence[20:] > 6).mean() == 0


def test_gaps_and_short_or_constant_series_are_no_trouble() -> None:
    rng = np.random.default_rng(4)
    x = nights.suite("gaussian", 40, 80, rng)
    x[rng.random(x.shape) < 0.3] = np.nan
    x[0], x[1], x[2, :-3] = 1.0, np.nan, np.nan
    assert judged(x).hit.sum() <= 1
    for width in (1, 2, 5):
        assert not judged(x[:, :width]).hit.any()


def test_a_suite_tells_of_it_beside_its_suspects() -> None:
    x = nights.suite("gaussian", 100, 80, np.random.default_rng(5))
    level = np.median(x[0])
    x[0, 62:] = level + 8 * (x[0, 62:] - level)
    told = np.zeros(100, dtype=int)
    for n in range(66, 81):
        spread = judge_suite(np.exp(x[:, :n])).spread
        assert spread is not None
        told += spread.hit
    assert told[0] == 1 and told[1:].sum() == 0
