"""What half precision does, and what the reported remedies hide: measured against float64."""

from __future__ import annotations

from harness.catalogue import numerics
from kernels.layer_norm import reference as norm_reference
from kernels.layer_norm import variants
from kernels.softmax import blocks
from kernels.softmax import reference as softmax_reference


def norms(point: tuple[int, float, float, float]) -> dict[str, numerics.NormRow]:
    names = ("fp32", "narrow", "narrow_wide_eps", "narrow_guarded")
    kernels = {n: getattr(variants, n) for n in names}
    return {r.variant: r for r in numerics.layer_norms(kernels, norm_reference.layer_norm, [point])}


def test_a_wider_eps_does_nothing_against_overflow_and_spoils_small_variances() -> None:
    large = norms((4096, 20.0, 1.0, 1e-5))
    assert large["narrow"].not_finite.low > 0.9 and large["narrow_wide_eps"].not_finite.low > 0.9
    small = norms((1024, 0.0, 1e-6, 1e-5))
    assert small["narrow"].error is not None and small["narrow"].error.high < 0.01
    assert small["narrow_wide_eps"].wrong.low > 0.9


def test_a_guard_makes_wrong_of_not_finite() -> None:
    for point in ((4096, 20.0, 1.0, 1e-5), (1024, 1.0, 0.0, 1e-8)):
        rows = norms(point)
        assert rows["narrow"].not_finite.low > 0.9
        assert rows["narrow_guarded"].not_finite.value == 0 and rows["narrow_guarded"].wrong.low > 0.9
        assert rows["fp32"].not_finite.value == rows["fp32"].wrong.value == 0


def test_errors_grow_slower_than_their_bounds() -> None:
    sums = {"pairwise": variants.narrow_sum, "sequential": variants.sequential_sum}
    grown = numerics.error_growth(sums, hidden_sizes=[64, 128, 256, 512, 1024])
    assert all(g.fitted.high < g.bound for g in grown)
    by = {(g.what, g.summation): g.fitted for g in grown}
    assert by["mean", "sequential"].low > by["mean", "pairwise"].high


def test_a_loss_scale_saves_small_gradients_and_loses_large_ones() -> None:
    rows = numerics.loss_scaling(
        variants.native, norm_reference.layer_norm, scales=[1, 1024], gradients=[1e-7, 1e-3, 100.0]
    )
    got = {(r.scale, r.gradient): r for r in rows}
    assert got[1, 1e-7].flushed.low > 0.3 and got[1024, 1e-7].flushed.high < 0.01
    assert got[1, 100.0].overflowed.value == 0 and got[1024, 100.0].overflowed.low > 0.9


def test_a_clip_matters_against_a_stale_maximum_only_and_costs_its_accuracy() -> None:
    forms = {"true": blocks.against_true, "running": blocks.against_running, "stale": blocks.against_stale}
    rows = numerics.softmaxes(
        forms, softmax_reference.softmax, clips=[None, 11.0], block_sizes=[16], spreads=[8.0], seeds=range(3)
    )
    got = {(r.form, r.clip): r for r in rows}
    for form in ("true", "running"):
        assert got[form, None].mse == got[form, 11.0].mse
    assert got["stale", None].overflow.low > 0.3 and got["stale", 11.0].overflow.value == 0
    error = got["stale", 11.0].relative_error
    assert error is not None and error.low > 0.5  # reported: below 1e-3
