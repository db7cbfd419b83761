"""Everything together: histories, newest nights, intervals, awkward series."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.detection.changes import detect
from harness.model import VerdictKind
from scripts.study.nights import KINDS, alarms, suite


def indices(x: np.ndarray, *, pool: bool = True) -> list[list[int]]:
    return [[c.index for c in f] for f in detect(list(np.exp(x)), pool=pool).changes]


def test_interval_covers_and_level_is_in_the_unit_given() -> None:
    rng = np.random.default_rng(0)
    x = np.exp(suite("gaussian", 80, 100, rng))
    x[:, 60:] *= 1.05
    result = detect(list(x), pool=True)
    changes = [next(c for c in f if abs(c.index - 60) <= 3) for f in result.changes if f]
    assert len(changes) >= 78
    assert np.mean([c.low <= 1.05 <= c.high for c in changes]) >= 0.9
    for c, row in zip(result.changes, x, strict=True):
        if c:
            assert c[0].before == pytest.approx(np.median(row[: c[0].index][-60:]), rel=1e-3)
            assert c[0].ratio == pytest.approx(c[0].after / c[0].before)


def test_verdict_follows_what_is_better() -> None:
    x = np.exp(suite("gaussian", 1, 80, np.random.default_rng(1)))
    x[:, 40:] *= 1.1
    (change,) = detect(list(x)).changes[0]
    assert change.verdict() is VerdictKind.SLOWER
    assert change.verdict("higher") is VerdictKind.FASTER
    assert not change.suspect


def test_a_step_that_goes_back_is_told_as_recovery() -> None:
    x = np.exp(suite("gaussian", 1, 120, np.random.default_rng(2)))
    x[:, 40:80] *= 1.1
    kinds = [c.kind for c in detect(list(x)).changes[0]]
    assert kinds == ["step", "recovery"]


def test_zeros_and_negatives_use_the_linear_scale() -> None:
    rng = np.random.default_rng(3)
    y = rng.normal(size=100)
    y[60:] += 8
    result = detect([y])
    assert not result.log[0]
    (change,) = result.changes[0]
    assert abs(change.index - 60) <= 1
    assert change.ratio is None
    assert change.after - change.before == pytest.approx(8, abs=1)


def test_index_counts_gaps() -> None:
    x = np.exp(suite("gaussian", 1, 80, np.random.default_rng(4)))[0]
    x[50:] *= 1.1
    holes = np.full(100, np.nan)
    holes[np.r_[0:30, 40:60, 70:100]] = x
    (change,) = detect([holes]).changes[0]
    assert abs(change.index - 70) <= 1


@pytest.mark.parametrize(
    "series",
    [
        [],
        [1.0],
        [1.0, 1.0],
        [np.nan] * 5,
        [0.0] * 20,
        [1e-300, 1e300] * 10,
        [-1.0, 0.0, 1.0],
        [5.0, 6.0],
        [np.inf, 1.0],
    ],
)
@pytest.mark.parametrize("pool", [False, True])
def test_awkward_series(series: list[float], pool: bool) -> None:
    result = detect([np.array(series, dtype=float), np.ones(30)], pool=pool)
    for c in result.changes[0]:
        assert np.isfinite([c.before, c.after, c.p]).all()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(hnp.arrays(float, st.integers(0, 40), elements=st.floats(allow_nan=True)), min_size=1, max_size=6),
    st.booleans(),
)
def test_any_numbers_give_ordered_finite_changes(series: list[np.ndarray], pool: bool) -> None:
    with np.errstate(all="ignore"):
        result = detect(series, pool=pool)
    for y, changes in zip(series, result.changes, strict=True):
        at = [c.index for c in changes]
        assert at == sorted(set(at))
        assert all(0 < i < len(y) and np.isfinite(y[i]) for i in at)
        assert all(0 <= c.p <= 1 for c in changes)


def test_unpooled_series_do_not_know_each_other() -> None:
    rng = np.random.default_rng(5)
    x = np.exp(suite("gaussian", 6, 90, rng))
    x[2, -5:] *= 1.08
    x[3, 30:] *= 1.05
    together = detect(list(x)).changes
    assert together == [detect([row]).changes[0] for row in x]
    assert together[2][0].suspect


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_false_alarms_night_by_night(kind: str) -> None:
    x = suite(kind, 150, 70, np.random.default_rng(6))
    # 0.5 per 1000 series-nights are 5 here; a tenth of a percent of such runs would show more than 12.
    assert len(list(alarms(indices, x))) <= 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_lone_steps_and_drift(kind: str) -> None:
    found = drifted = 0
    for seed in range(8):
        x = suite(kind, 200, 62, np.random.default_rng(seed))
        x[:3, 60:] += np.log(1.05)
        found += sum(any(abs(i - 60) <= 2 for i in f) for f in indices(x)[:3])
        x = suite(kind, 200, 80, np.random.default_rng(seed))
        x[:3, 60:] += 0.002 * np.arange(1, 21)
        drifted += sum(any(i >= 55 for i in f) for f in indices(x)[:3])
    assert found >= 21
    assert drifted >= (18 if kind.startswith("ar") else 22)


def test_work_grows_no_faster_than_the_length() -> None:
    """Counted in points that the recursion touches, not in seconds."""
    from harness.detection import partition

    touched = []
    original = partition._cheapest

    def counting(position: np.ndarray, *rest: object) -> np.ndarray:
        touched.append(position.shape[0] * position.shape[1] ** 2)
        return original(position, *rest)

    sizes = []
    for n in (20_000, 80_000):
        touched.clear()
        partition._cheapest = counting
        try:
            detect([np.exp(0.01 * np.random.default_rng(7).normal(size=n))])
        finally:
            partition._cheapest = original
        sizes.append(sum(touched))
    assert sizes[1] <= 5 * sizes[0]
