"""Models of ratios: proper densities, fitted parameters, and shifts that are uneven or go the other way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.explain import explain
from harness.explain.noise import RatioModel, fit_groups, log_density, mixture, scales

from .test_recovery import PREDICATES, exact, said, table


@pytest.mark.parametrize("tail", [2.2, 4.0, 60.0])
@pytest.mark.parametrize("top", [0.02, 0.1, 1.5])
def test_both_groups_have_proper_densities(tail: float, top: float) -> None:
    """Only then is a sum of log likelihood ratios evidence, with chance beyond t nats rarer than exp(-t)."""
    grid = np.linspace(-400, 400, 4_000_001)
    model = RatioModel(0.01, 0.08, np.full(len(grid), 0.02), tail, 0.0, top)
    step = grid[1] - grid[0]
    for dense in (model.ordinary(grid), model.slowed(grid)):
        assert float(np.exp(dense).sum() * step) == pytest.approx(1.0, abs=5e-3)


def test_log_density_is_that_of_a_student_t() -> None:
    z = np.array([-3.0, 0.0, 0.5, 10.0])
    cauchy = -np.log(np.pi * (1 + z * z))
    assert log_density(z, 1.0) == pytest.approx(cauchy)
    normal = -0.5 * z[:3] ** 2 - 0.5 * math.log(2 * math.pi)
    assert log_density(z[:3], 1e6) == pytest.approx(normal, abs=1e-4)


@pytest.mark.parametrize("kind", ["gauss", "t3"])
def test_fit_finds_centre_shift_scale_and_tail(kind: str) -> None:
    rng = np.random.default_rng(0)
    inside = rng.random(4000) < 0.2
    noise = rng.standard_normal(4000) if kind == "gauss" else rng.standard_t(3, 4000)
    model = fit_groups(0.01 + 0.02 * noise + 0.05 * inside, inside, [np.ones(4000)])
    assert model.centre == pytest.approx(0.01, abs=0.002)
    assert model.shift == pytest.approx(0.05, abs=0.004)
    assert float(model.scale[0]) == pytest.approx(0.02, rel=0.08)
    assert model.tail >= 12 if kind == "gauss" else model.tail in (2.2, 3.0, 4.0)


def test_mixture_parts_two_groups_nobody_named() -> None:
    rng = np.random.default_rng(1)
    slow = rng.random(2000) < 0.3
    model = mixture(0.02 * rng.standard_normal(2000) + 0.1 * slow, np.ones(2000), 60.0, 0.3)
    assert model.shift == pytest.approx(0.1, abs=0.01)
    assert ((model.weight(0.1 * slow) > 0) == slow).all()


def test_scales_follow_errors_that_differ() -> None:
    logs = np.zeros(4)
    assert len(scales(logs, None)) == len(scales(logs, np.full(4, 0.02))) == 1
    shapes = scales(logs, np.array([0.01, 0.02, 0.04, math.nan]))
    assert len(shapes) == 3
    assert shapes[1][2] / shapes[1][0] == pytest.approx(4)
    assert shapes[1][3] == pytest.approx(1)


def test_known_errors_sharpen() -> None:
    """Half of the rows are ten times noisier: without their errors the small effect is lost."""
    rows, truth = table("q_len == 1 and causal", 600, 2)
    rng = np.random.default_rng(3)
    error = np.where(rng.random(600) < 0.5, 0.1, 0.01)
    ratio = np.exp(error * rng.standard_normal(600) + math.log(1.03) * truth)
    told = explain(rows, ratio=ratio, ratio_se=error * ratio)
    assert exact(told, "q_len == 1 and causal"), said(told)


@pytest.mark.parametrize("predicate", PREDICATES[:3])
def test_one_cause_may_cost_combinations_differently(predicate: str) -> None:
    rows, truth = table(predicate, 600, 4)
    rng = np.random.default_rng(5)
    shift = truth * np.exp(rng.normal(math.log(0.5), 0.6, 600))
    told = explain(rows, ratio=np.exp(0.02 * rng.standard_t(3, 600) + shift))
    assert exact(told, predicate), said(told)
    assert told.regressed[truth].mean() > 0.95


@pytest.mark.slow
def test_getting_faster_is_no_regression_of_the_others() -> None:
    for predicate, factor in (("q_len == 1", 0.8), ("kv_len > 64", 0.8), ("backend == 'flash_attn'", 0.95)):
        rows, truth = table(predicate, 500, 6)
        noise = 0.02 * np.random.default_rng(7).standard_normal(500)
        told = explain(rows, ratio=np.exp(noise + math.log(factor) * truth))
        assert not told.triggers, said(told)


def test_a_regression_is_found_beside_an_improvement() -> None:
    rows, truth = table("q_len == 1 and causal", 600, 8)
    faster = np.array([r["heads_q"] == 32 for r in rows])
    noise = 0.02 * np.random.default_rng(9).standard_normal(600)
    told = explain(rows, ratio=np.exp(noise + math.log(1.15) * truth - 0.3 * (faster & ~truth)))
    assert "q_len == 1" in said(told)
    assert "causal" in said(told)


def test_single_outliers_are_listed_and_not_explained() -> None:
    rows, _ = table("True", 300, 10)
    ratio = np.exp(0.01 * np.random.default_rng(11).standard_normal(300))
    ratio[17] = 3.0
    told = explain(rows, ratio=ratio)
    assert not told.triggers
    assert told.unexplained == (17,)
