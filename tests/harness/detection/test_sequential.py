"""Sequential A/B: the interval holds at every look, and the question is settled early."""

import numpy as np
import pytest

from harness.detection.sequential import Decision, SequentialOptions, decide, interval, peak
from harness.model import VerdictKind


def run(rng: np.random.Generator, ratio: float, sd: float, heavy: bool = False) -> tuple[Decision, bool]:
    """The decision, and whether every interval on the way covered the ratio."""
    draw = (lambda: rng.standard_t(3, 96) / np.sqrt(3)) if heavy else (lambda: rng.normal(size=96))
    base, head = np.exp(sd * draw()), ratio * np.exp(sd * draw())
    covered = True
    for n in range(4, 97, 4):
        result = decide(base[:n], head[:n])
        covered &= result.low <= ratio <= result.high
        if result.verdict is not None:
            return result, covered
    raise AssertionError("never decided")


@pytest.mark.parametrize("heavy", [False, True])
def test_error_and_power(heavy: bool) -> None:
    rng = np.random.default_rng(0)
    same = [run(rng, 1.0, 0.02, heavy) for _ in range(40)]
    slow = [run(rng, 1.05, 0.02, heavy) for _ in range(40)]
    assert sum(r.verdict in (VerdictKind.SLOWER, VerdictKind.FASTER) for r, _ in same) <= 3
    assert sum(r.verdict is VerdictKind.SLOWER for r, _ in slow) >= 39
    assert np.median([r.pairs for r, _ in slow]) <= 24
    assert np.mean([c for _, c in same + slow]) >= 0.92


def test_wealth_is_fair_under_the_null() -> None:
    """The expected wealth after any number of pairs is one at most: what Ville's inequality asks."""
    rng = np.random.default_rng(1)
    from harness.detection.sequential import _wealth

    final = [np.exp(_wealth(rng.standard_t(3, 12), SequentialOptions())[-1]) for _ in range(3000)]
    assert np.mean(final) == pytest.approx(1, abs=0.25)
    assert np.mean([peak(rng.normal(size=60), 0.0, 1) >= 20 for _ in range(300)]) <= 0.08


def test_interval_is_where_the_wealth_stays_low() -> None:
    d = np.random.default_rng(2).normal(0.3, 1, size=40)
    low, high = interval(d, 0.05)
    assert peak(d, low - 1e-6, 1) >= 40 > peak(d, low + 1e-6, 1)
    assert peak(d, high + 1e-6, -1) >= 40 > peak(d, high - 1e-6, -1)


def test_family_asks_for_more() -> None:
    d = np.random.default_rng(3).normal(0.02, 0.02, size=40)
    base, head = np.ones(40), np.exp(d)
    alone, many = decide(base, head), decide(base, head, SequentialOptions(family=100))
    assert many.high - many.low > alone.high - alone.low


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        ([], [], None),
        ([1.0], [2.0], None),
        ([5.0] * 20, [5.0] * 20, VerdictKind.SAME),
        ([100.0] * 20, [110.0] * 20, VerdictKind.SLOWER),
        ([np.nan] * 96, [1.0] * 96, None),
        ([-5.0] * 20, [-5.0] * 20, VerdictKind.SAME),
    ],
)
def test_awkward_pairs(base: list[float], head: list[float], expected: VerdictKind | None) -> None:
    assert decide(base, head).verdict is expected


def test_direction_and_end() -> None:
    assert decide([1.0] * 20, [1.1] * 20, better="higher").verdict is VerdictKind.FASTER
    rng = np.random.default_rng(4)
    wild = decide(np.exp(rng.normal(size=96)), np.exp(rng.normal(size=96)))
    assert wild.verdict is VerdictKind.AMBIGUOUS
