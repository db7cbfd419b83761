"""Change points inside histories: found, placed, and silent where nothing changes."""

import numpy as np
import pytest

from harness.detection.batch import flatten, make_batch
from harness.detection.interior import InteriorOptions, interior, normal_from_t, prepare, take_back, weigh

OPTIONS = InteriorOptions()


def found(series: list[np.ndarray], *, pooled: bool = False) -> list[list[int]]:
    batch = make_batch(*flatten(series))
    at, _ = interior(prepare(batch, OPTIONS, pooled=pooled), OPTIONS)
    return [[int(batch.row[a]) for a in at if batch.ids[a] == i] for i in range(len(series))]


def nights(rng: np.random.Generator, series: int, n: int, sd: float = 0.01) -> np.ndarray:
    return np.exp(sd * rng.normal(size=(series, n)))


def test_steps_are_found_and_placed() -> None:
    x = nights(np.random.default_rng(0), 60, 100)
    x[:, 60:] *= 1.05
    placed = [any(abs(k - 60) <= 1 for k in f) for f in found(list(x))]
    assert np.mean(placed) >= 0.95


def test_steps_keep_their_place_under_autocorrelation() -> None:
    rng = np.random.default_rng(1)
    e = rng.normal(size=(80, 120))
    for t in range(1, 120):
        e[:, t] = 0.6 * e[:, t - 1] + 0.8 * e[:, t]
    x = np.exp(0.01 * e)
    x[:, 70:] *= 1.06
    ours = found(list(x), pooled=True)
    near = [min(abs(k - 70) for k in f) for f in ours if f]
    assert len(near) >= 76
    assert np.mean(np.array(near) <= 1) >= 0.9


def test_quiet_where_nothing_changes() -> None:
    rng = np.random.default_rng(2)
    heavy = np.exp(0.01 * rng.standard_t(3, size=(200, 90)) / np.sqrt(3))
    assert sum(map(len, found(list(nights(rng, 200, 90))))) <= 1
    assert sum(map(len, found(list(heavy)))) <= 1


@pytest.mark.parametrize("spikes", [1, 3])
def test_spikes_are_no_steps(spikes: int) -> None:
    x = nights(np.random.default_rng(3), 40, 80)
    x[:, 40 : 40 + spikes] *= 1.8
    assert sum(map(len, found(list(x)))) == 0


def test_two_steps_are_two() -> None:
    x = nights(np.random.default_rng(4), 1, 120)
    x[:, 40:80] *= 1.06
    (ours,) = found(list(x))
    assert [round(k / 40) for k in ours] == [1, 2]


def test_take_back_leaves_nothing_weak() -> None:
    """Every break that stands passes the bar with the neighbours it has at the end: the slow definition."""
    rng = np.random.default_rng(5)
    x = nights(rng, 5, 150)
    x[:, 70:] *= 1.04
    batch = make_batch(*flatten(list(x)))
    prepared = prepare(batch, OPTIONS, pooled=False)
    kept = take_back(np.array([k for k in range(10, 750, 11) if k % 150]), prepared, OPTIONS)
    for series in range(5):
        ours = [int(k) for k in kept if batch.ids[k] == series]
        edges = [int(batch.start[series]), *ours, int(batch.start[series + 1])]
        for i, at in enumerate(ours):
            one = weigh(np.array([at]), np.array([edges[i]]), np.array([edges[i + 2]]), prepared, OPTIONS)
            assert one.z[0] >= OPTIONS.z


def test_batches_do_not_mix_series() -> None:
    rng = np.random.default_rng(6)
    series = [nights(rng, 1, n)[0] * (1 + 0.08 * (np.arange(n) >= n // 2)) for n in (0, 1, 5, 60, 200, 33)]
    together = found(series)
    assert together == [found([s])[0] for s in series]


def test_normal_from_t_has_the_tail_of_t() -> None:
    from scipy import stats

    for dof in (5.0, 20.0, 60.0):
        t = np.array([1.0, 2.0, 4.0, 6.0])
        exact = stats.norm.isf(stats.t.sf(t, dof))
        assert np.allclose(normal_from_t(t, np.full(4, dof)), exact, rtol=0.01)
