"""Places and partitions against plain loops."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.detection.batch import flatten, lag_one, make_batch, medians, running_median, step_noise
from harness.detection.partition import PartitionOptions, partition, places


def slow_partition(z: np.ndarray, at: list[int], options: PartitionOptions) -> tuple[float, list[int]]:
    """The recursion of one series as two loops."""
    n = len(z)
    stops = [0, *(a for a in at if options.shortest <= a <= n - options.shortest), n]
    best: list[tuple[float, list[int]]] = [(0.0, [])]
    for k in range(1, len(stops)):
        options_here = []
        for j in range(k):
            part = z[stops[j] : stops[k]]
            if len(part) >= options.shortest:
                cost = best[j][0] + float(((part - part.mean()) ** 2).sum()) + options.penalty * np.log(max(n, 3))
                options_here.append((cost, best[j][1] + ([stops[j]] if j else [])))
        best.append(min(options_here) if options_here else (np.inf, []))
    return best[-1]


def cost_of(z: np.ndarray, breaks: list[int], options: PartitionOptions) -> float:
    parts = np.split(z, breaks)
    return float(
        sum(((p - p.mean()) ** 2).sum() for p in parts) + options.penalty * np.log(max(len(z), 3)) * len(parts)
    )


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 45), min_size=1, max_size=9), st.integers(0, 2**32 - 1))
def test_partition_is_as_cheap_as_the_plain_recursion(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    options = PartitionOptions()
    series = [rng.normal(size=n) + 4 * (np.arange(n) > n // 3) - 3 * (np.arange(n) > n // 2) for n in lengths]
    flat, start = flatten(series)
    every = np.arange(len(flat))
    found = partition(flat, start, every, options)
    for i, z in enumerate(series):
        if len(z) < options.shortest:
            continue
        ours = [int(b - start[i]) for b in found if start[i] < b < start[i + 1]]
        expected, _ = slow_partition(z, list(range(1, len(z))), options)
        assert cost_of(z, ours, options) <= expected + 1e-6


def test_places_keep_what_the_best_partition_needs() -> None:
    """Leaving places out must cost next to nothing, against all places, on series with real steps."""
    rng = np.random.default_rng(0)
    options = PartitionOptions()
    worse = []
    for _ in range(60):
        z = rng.normal(size=120)
        for at in rng.integers(5, 115, size=3):
            z[at:] += rng.normal() * 4
        start = np.array([0, 120])
        few = partition(z, start, places(z, start, options), options).tolist()
        expected, _ = slow_partition(z, list(range(1, 120)), options)
        worse.append(cost_of(z, few, options) - expected)
    assert np.mean(worse) < 0.5
    assert np.median(worse) < 0.01


def test_long_series_are_cut_into_blocks_and_still_partitioned() -> None:
    z = np.random.default_rng(1).normal(size=5000) + 6.0 * (np.arange(5000) >= 2345)
    start = np.array([0, 5000])
    options = PartitionOptions(block=1000)
    found = partition(z, start, places(z, start, options), options)
    assert np.abs(found - 2345).min() <= 1
    assert {1000, 2000, 3000, 4000} <= set(found.tolist())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
def test_flat_helpers_match_loops(lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    series = [np.exp(rng.normal(size=n)) for n in lengths]
    flat, start = flatten(series)
    assert np.allclose(medians(flat, start), [np.median(s) if len(s) else 0.0 for s in series])
    smooth = running_median(flat, start, 15)
    for i, s in enumerate(series):
        n = len(s)
        mirrored = []
        for j in range(-7, n + 7):
            k = -1 - j if j < 0 else j
            k = 2 * n - 1 - k if k >= n else k
            mirrored.append(min(max(k, 0), n - 1))
        slow = [float(np.median(s[mirrored[j : j + 15]])) for j in range(n)]
        assert np.allclose(smooth[start[i] : start[i + 1]], slow)
    batch = make_batch(flat, start)
    scale, same = step_noise(batch, 1e-9)
    rho = lag_one(batch.y, batch)
    for i, s in enumerate(series):
        d = np.diff(np.log(s))
        if len(d):
            assert np.isclose(scale[i], max(1.4826 / np.sqrt(2) * np.median(np.abs(d)), 1e-9))
            assert same[i] == 0
        if len(s) > 4:
            slow_rho = 1 + 2 * (d[1:] @ d[:-1] / (len(d) - 1)) / (d @ d / len(d))
            assert np.isclose(rho[i], np.clip(slow_rho, -1, 1))


def test_batch_chooses_the_scale_and_keeps_gaps_out() -> None:
    flat, start = flatten([np.array([1.0, np.nan, 2.0]), np.array([0.0, 4.0, -4.0]), np.array([]), np.array([np.inf])])
    batch = make_batch(flat, start)
    assert batch.log.tolist()[:2] == [True, False]
    assert batch.count.tolist() == [2, 3, 0, 0]
    assert batch.row.tolist() == [0, 2, 0, 1, 2]
    assert batch.unit[1] == 4.0
