"""A/B: error rates by simulation, slow oracles, and inputs that break logs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.detection.ab import ABOptions, ABResult, compare, family
from harness.model import VerdictKind


def draw(rng: np.random.Generator, n: int, scale: float = 0.02, heavy: bool = False) -> np.ndarray:
    noise = rng.standard_t(3, n) if heavy else rng.normal(size=n)
    return np.exp(scale * noise)


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("paired", [False, True])
def test_error_rate_and_power(heavy: bool, paired: bool) -> None:
    rng = np.random.default_rng(7)
    same = [compare(draw(rng, 30, heavy=heavy), draw(rng, 30, heavy=heavy), paired=paired) for _ in range(200)]
    slow = [compare(draw(rng, 30, heavy=heavy), 1.05 * draw(rng, 30, heavy=heavy), paired=paired) for _ in range(100)]
    # An alarm needs significance and 2 %, so it is far rarer than 5 %.
    assert sum(r.verdict is VerdictKind.SLOWER for r in same) <= 2
    assert sum(r.verdict is VerdictKind.SLOWER for r in slow) >= 97
    covered = np.mean([r.low <= 1 <= r.high for r in same])
    assert covered >= 0.90


def test_pairs_cancel_drift() -> None:
    rng = np.random.default_rng(1)
    drift = np.exp(np.linspace(0, 0.5, 40))
    base, head = drift * draw(rng, 40, 0.005), drift * 1.03 * draw(rng, 40, 0.005)
    assert compare(base, head, paired=True).verdict is VerdictKind.SLOWER
    assert compare(base, head, paired=False).verdict is not VerdictKind.SLOWER


@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_paired_estimate_is_the_median_of_walsh_averages(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    base, head = draw(rng, n), draw(rng, n)
    d = np.log(head) - np.log(base)
    slow = np.median([(d[i] + d[j]) / 2 for i in range(n) for j in range(i, n)])
    assert compare(base, head, paired=True).ratio == pytest.approx(np.exp(slow))


def test_family_controls_what_single_tests_do_not() -> None:
    rng = np.random.default_rng(3)
    options = ABOptions(relevant=0.0)
    results = [compare(draw(rng, 12), draw(rng, 12), options) for _ in range(300)]
    alone = sum(r.verdict is VerdictKind.SLOWER for r in results)
    together = sum(r.verdict is VerdictKind.SLOWER for r in family(results, options))
    assert alone >= 3
    assert together <= 1


def test_direction() -> None:
    up = compare([1.0, 1.01, 0.99] * 10, [1.2, 1.21, 1.19] * 10, better="higher")
    assert up.verdict is VerdictKind.FASTER


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        ([], [1.0], VerdictKind.AMBIGUOUS),
        ([1.0], [2.0], VerdictKind.AMBIGUOUS),
        ([5.0] * 9, [5.0] * 9, VerdictKind.SAME),
        ([100.0] * 4, [101.0] * 4, VerdictKind.SAME),
        ([100.0] * 4, [110.0] * 4, VerdictKind.SLOWER),
        ([0.0] * 9, [0.0] * 9, VerdictKind.SAME),
        ([np.nan, np.inf], [1.0, 2.0], VerdictKind.AMBIGUOUS),
    ],
)
def test_awkward_inputs(base: list[float], head: list[float], expected: VerdictKind) -> None:
    result = compare(base, head)
    assert isinstance(result, ABResult)
    assert result.verdict is expected


def test_negative_values_use_the_linear_scale_and_say_so() -> None:
    assert compare([-1.0, -2.0, -1.5], [-1.0, -2.1, -1.4]).scale == "linear"
