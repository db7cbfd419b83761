"""A rising exponent is told for the whole line; more of the same is not."""

from __future__ import annotations

import numpy as np

from harness.judge.growth import growths

ROWS = [{"backend": b, "q_len": n, "kv_len": n, "batch": 1} for b in ("a", "b") for n in (256, 512, 1024, 2048)]
X = np.array([float(str(r["q_len"])) for r in ROWS])


def test_a_fall_from_linear_to_quadratic_is_told_with_both_exponents() -> None:
    after = np.where(np.arange(8) < 4, X**2, X) * 100
    found = growths(ROWS, X * 100, after)
    assert set(found) == {0, 1, 2, 3}
    assert set(found.values()) == {"seq_len^1.00 -> seq_len^2.00 [2.00, 2.00]"}


def test_twice_as_much_everywhere_grows_as_before() -> None:
    assert growths(ROWS, X, 2 * X) == {}


def test_less_growth_and_unknown_values_are_no_rise() -> None:
    assert growths(ROWS, X**2, X) == {}
    unknown = X.copy()
    unknown[[0, 1]] = np.nan
    assert growths(ROWS, unknown, X**2).keys() == {4, 5, 6, 7}
