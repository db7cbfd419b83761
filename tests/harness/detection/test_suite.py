"""Judging one machine's runs of a suite."""

import numpy as np
import pytest

from harness.detection.suite import SuiteOptions, control_drift, judge_suite
from scripts.study.nights import suite


def values(seed: int, series: int = 120, runs: int = 70) -> np.ndarray:
    return np.exp(suite("gaussian", series, runs, np.random.default_rng(seed)))


def test_suspects_with_start_direction_and_q() -> None:
    x = values(0)
    x[0, -3:] *= 1.06
    x[1, -3:] *= 0.92
    judged = judge_suite(x)
    by_series = {s.series: s for s in judged.suspects}
    assert {0, 1} <= set(by_series) and len(by_series) <= 3
    assert by_series[0].adverse and not by_series[1].adverse
    assert abs(by_series[0].start - 67) <= 1
    assert all(s.q >= s.p for s in judged.suspects)
    assert 0.02 < np.nanmedian(judged.smallest) < 0.06
    assert judged.level[0] == pytest.approx(np.median(x[0, -3:]), rel=0.02)


def test_direction_of_metrics_where_more_is_better() -> None:
    x = values(1)
    x[0, -3:] *= 0.9
    (suspect,) = [s for s in judge_suite(x, adverse=-np.ones(120)).suspects if s.series == 0]
    assert suspect.adverse


def test_exact_series_by_flag() -> None:
    x = values(2)
    x[5] = 4096.0
    x[5, -1] = 4097.0
    exact = np.zeros(120, dtype=bool)
    exact[5] = True
    judged = judge_suite(x, exact=exact)
    (suspect,) = [s for s in judged.suspects if s.series == 5]
    assert (suspect.kind, suspect.start, suspect.p) == ("exact", 69, 0.0)
    assert judged.smallest[5] == 0


def test_the_machine_is_taken_out_with_control_kernels() -> None:
    x = values(3)
    rng = np.random.default_rng(4)
    slow = np.zeros(70)
    slow[-4:] = 0.06
    moved = x * np.exp(slow)
    controls = np.exp(slow + 0.003 * rng.normal(size=(3, 70)))
    assert len(judge_suite(moved).suspects) >= 60
    assert len(judge_suite(moved, drift=control_drift(controls)).suspects) <= 2


def test_control_drift_with_missing_kernels() -> None:
    controls = np.array([[1.0, 1.0, 1.1, np.nan], [2.0, np.nan, 2.2, np.nan]])
    assert np.allclose(np.exp(control_drift(controls)), [1.0, 1.0, 1.1, 1.0], atol=0.06)


@pytest.mark.parametrize("runs", [1, 2, 3, 6])
def test_very_short_history(runs: int) -> None:
    x = values(5, runs=runs)
    x[0, -1] *= 1.3
    judged = judge_suite(x)
    if runs == 1:
        assert not judged.suspects
    else:
        assert judged.suspects[0].series == 0
        assert judged.suspects[0].adverse
        assert judged.suspects[0].ratio == pytest.approx(1.3, rel=0.1)


def test_group_finds_what_the_suite_is_too_large_for() -> None:
    x = values(6, series=400)
    labels = ["mine" if i < 8 else "theirs" for i in range(400)]
    x[:8, -6:] *= 1.02
    with_groups = judge_suite(x, groups=labels).suspects
    assert sum(s.series < 8 for s in with_groups) >= 5
    assert sum(s.series >= 8 for s in with_groups) <= 3


def test_nothing_stored_is_nothing_found() -> None:
    empty = judge_suite(np.zeros((0, 0)))
    assert not empty.suspects
    nothing = judge_suite(np.full((3, 10), np.nan), options=SuiteOptions())
    assert not nothing.suspects
    assert np.isnan(nothing.level).all()
