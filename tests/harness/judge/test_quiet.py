"""Nights without any change, judged with everything that `attnwatch nightly` looks with: the benchmark in small."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.study import nights
from scripts.study.nightly import unchanged


@pytest.mark.slow
@pytest.mark.parametrize("kind", nights.KINDS)
def test_what_is_only_noise_is_looked_at_and_never_confirmed(kind: str) -> None:
    x = nights.suite(kind, 120, 72, np.random.default_rng(31))
    told = unchanged(x, [kind] * 120, 60, seed=32)
    assert told.suspects.total == 120 * 12
    assert told.suspects.rate < 0.1
    assert (told.kept.hits, told.noisier.hits) == (0, 0)


def test_a_real_change_is_raised_by_the_same_screens_the_first_night() -> None:
    from harness.judge.suspects import judge_values

    x = nights.suite("gaussian", 120, 61, np.random.default_rng(33))
    x[:6, -1] += np.log(1.06)
    told, _, wider = judge_values(np.exp(x), np.full(x.shape, 0.003), np.zeros(61), 1.0, [], 0.02)
    assert {i for i, s in told.items() if s.adverse} >= set(range(6))
    assert not wider
