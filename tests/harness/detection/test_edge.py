"""The newest nights and families: rates by simulation, plain loops as oracles."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.detection.edge import EdgeOptions, discount, edge, ratios, step_shape
from harness.detection.family import FamilyOptions, family
from harness.detection.noise import NoiseOptions, fit_noise, row_median
from scripts.study.nights import KINDS, suite


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_learnt(kind: str) -> None:
    noise = fit_noise(suite(kind, 200, 90, rng(0)), pooled=True)
    assert np.median(noise.rho) == pytest.approx(0.6 if kind.startswith("ar") else 0.0, abs=0.12)
    assert 0.004 < np.median(noise.scale) < 0.0125
    assert noise.known.all()
    # A density: it integrates to about one, whatever the shape.
    grid = np.arange(-55, 55, 0.05)
    assert np.exp(noise.log_density(grid)).sum() * 0.05 == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("nights", [2, 3, 4, 6])
def test_very_short_history_is_no_error(nights: int) -> None:
    x = suite("gaussian", 30, nights, rng(1))
    assert not edge(x, pooled=True).hit.any()
    assert family(x, fit_noise(x, pooled=True)) is None


def test_gaps_are_not_filled() -> None:
    x = suite("gaussian", 60, 80, rng(2))
    x[:, 30:50:3] = np.nan
    x[0, -2:] += 0.06
    x[1, -2:] += 0.06
    x[1, -1] = np.nan
    x[2, :] = np.nan
    hit = edge(x, pooled=True).hit
    assert hit[0]
    assert not hit[1:3].any()


def test_a_lone_step_by_the_second_night_and_silence_elsewhere() -> None:
    hits, false, total = 0, 0, 0
    for seed in range(10):
        x = suite("gaussian", 150, 62, rng(seed))
        x[:3, 60:] += np.log(1.05)
        result = edge(x, pooled=True)
        hits += int((result.hit[:3] & (np.abs(result.start[:3] - 60) <= 1)).sum())
        false += int(result.hit[3:].sum())
        total += 147
    assert hits >= 28
    assert false <= 3


def test_direction_and_size() -> None:
    x = suite("gaussian", 60, 70, rng(3))
    x[0, -6:] += 0.05
    x[1, -6:] -= 0.05
    result = edge(x, pooled=True)
    assert result.step[0] == pytest.approx(0.05, abs=0.015)
    assert result.step[1] == pytest.approx(-0.05, abs=0.015)


def test_drift_is_found_as_a_slope_or_a_step() -> None:
    x = suite("gaussian", 80, 80, rng(4))
    x[:3, 60:] += 0.002 * np.arange(1, 21)
    assert edge(x, pooled=True).hit[:3].all()


def test_one_night_far_outside_everything_seen() -> None:
    x = suite("gaussian", 120, 70, rng(5))
    x[0, -1] += 0.08
    assert not edge(x, pooled=True).hit[0]
    assert edge(x, EdgeOptions(one_night=True), pooled=True).hit[0]
    assert edge(x, EdgeOptions(one_night=True), pooled=True).hit.sum() == 1


def test_nights_with_wide_errors_count_less() -> None:
    x = suite("gaussian", 60, 70, rng(6))
    x[0, -2:] += 0.055
    wide = np.ones(x.shape)
    wide[0, -2:] = 4.0
    assert edge(x, pooled=True).hit[0]
    assert not edge(x, pooled=True, inflate=wide).hit[0]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.floats(-6, 6))
def test_ratios_match_a_loop(seed: int, m: int, size: float) -> None:
    x = suite("ar(1) 0.6", 12, 40, rng(seed))
    noise = fit_noise(x, pooled=True)
    e = noise.innovations(x)[:, -m:]
    first, later, _ = ratios(e, noise, np.full((1, 12), size))
    for i in range(12):
        total = 0.0
        for k in range(m):
            # An innovation is what a night adds to rho times the night before; a step adds size to every night.
            shift = size if k == 0 else size * (1 - noise.rho[i])
            total += float(noise.log_density(np.array(e[i, k] - shift)) - noise.log_density(np.array(e[i, k])))
        ours = first[0, i, 0] + later[0, i, 1:].sum()
        assert ours == pytest.approx(total, abs=1e-9)


def test_discount_is_that_of_two_samples() -> None:
    """Without autocorrelation n nights before and m after leave n / (n + m) of the evidence."""
    noise = fit_noise(suite("gaussian", 20, 90, rng(7)), NoiseOptions(lean_rho=1e12), pooled=False)
    assert noise.rho.max() < 1e-9
    for m in (2, 8):
        assert np.allclose(discount(step_shape(noise, m), noise), noise.count / (noise.count + m))


@given(st.integers(0, 2**32 - 1), st.integers(0, 9))
def test_row_median(seed: int, width: int) -> None:
    x = rng(seed).normal(size=(6, width))
    x[x < -0.5] = np.nan
    ours = row_median(x)
    for row, value in zip(x, ours, strict=True):
        known = row[np.isfinite(row)]
        assert (np.isnan(value) and not len(known)) or value == pytest.approx(np.median(known))


@pytest.mark.parametrize("kind", ["gaussian", "ar(1) 0.6"])
def test_family_of_two_percent_by_the_fifth_night(kind: str) -> None:
    x = suite(kind, 200, 65, rng(8))
    x[:40, 60:] += np.log(1.02)
    found = family(x, fit_noise(x, pooled=True))
    assert found is not None
    assert abs(found.start - 60) <= 1
    assert found.step == pytest.approx(0.02, abs=0.008)
    assert found.members[:40].mean() >= (0.9 if kind == "gaussian" else 0.7)
    assert found.members[40:].mean() <= 0.05


def test_no_family_in_noise_nor_in_one_bad_night() -> None:
    for seed in range(6):
        x = suite("gaussian", 150, 70, rng(seed))
        assert family(x, fit_noise(x, pooled=True)) is None
    x[:60, -1] += 0.04
    assert family(x, fit_noise(x, pooled=True)) is None


def test_family_total_matches_a_loop() -> None:
    from harness.detection.family import _total

    value = rng(9).normal(size=(3, 7)) * 5
    for share in (0.05, 0.5):
        slow = [sum(np.log(1 - share + share * np.exp(v)) for v in row) for row in value]
        assert np.allclose(_total(value, share), slow)


def test_few_series_make_no_family() -> None:
    x = suite("gaussian", 30, 70, rng(10))
    x[:3, 60:] += 0.02
    assert family(x, fit_noise(x, pooled=True), FamilyOptions(fewest=5)) is None
