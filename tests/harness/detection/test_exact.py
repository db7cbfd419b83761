"""Deterministic series: one unit is a change, a blip is not."""

import numpy as np
import pytest

from harness.detection.changes import detect
from harness.detection.exact import exact_changes


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([7], []),
        ([7, 7, 7, 7], []),
        ([7, 7, 7, 8], [3]),
        ([7, 7, 8, 7, 7], []),
        ([7, 7, 8, 8, 7, 7], [2, 4]),
        ([7, 7, 8, 7, 7, 7, 8], []),
        ([7, 7, 8, 9, 9], [2, 3]),
        ([7, 8, 8, 8], [1]),
    ],
)
def test_changes(values: list[float], expected: list[int]) -> None:
    assert exact_changes(np.array(values, dtype=float)).tolist() == expected


def test_one_byte_is_found_the_same_night() -> None:
    y = np.full(50, 1_073_741_824.0)
    y[49] += 1
    result = detect([y])
    (change,) = result.changes[0]
    assert (change.index, change.kind, change.suspect, change.p) == (49, "exact", True, 0.0)
    assert change.after - change.before == pytest.approx(1, abs=1e-3)
    assert result.exact.tolist() == [True]


def test_rounded_timings_are_not_deterministic() -> None:
    rng = np.random.default_rng(0)
    y = np.round(10 + 0.4 * rng.normal(size=(40, 80)))
    result = detect(list(y))
    assert not result.exact.any()
    assert sum(map(len, result.changes)) <= 1
