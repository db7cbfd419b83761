"""Gradients over ranks and pruned caches, as the catalogue compares them."""

from __future__ import annotations

import pytest

from harness.catalogue import gradients, pruning
from kernels.kv_gradients import ranks
from kernels.kv_pruning import pruning as kernels


def test_a_sum_is_as_many_times_too_large_as_there_are_ranks_whatever_the_batch_and_the_heads() -> None:
    found = gradients.compare(
        ranks.reduced, ranks.whole, kinds=[("MHA", 4), ("MQA", 1)], batches=[4, 16], ranks=[2], heads_q=4, seeds=1
    )
    assert len(found) == 8
    for r in found:
        times = 2.0 if r.reduction == "sum" else 1.0
        assert r.norm.value == pytest.approx(times, rel=1e-4)
        assert r.variance.value == pytest.approx(times**2, rel=1e-4)
        assert r.error == pytest.approx(times - 1, abs=1e-4)


def test_what_pruning_saves_and_costs() -> None:
    rows = pruning.sweep(kernels, keeps=[1.0, 0.5, 0.25], spreads=[4.0], length=64, head_dim=16, steps=2, seeds=3)
    held = {(r.policy, r.keep, r.shared): r for r in rows}
    for policy in ("entropy", "random", "recent"):
        whole = held[policy, 1.0, False]
        assert (whole.bytes, whole.error.value) == (1.0, 0.0) and whole.mass.value == pytest.approx(1.0)
        assert [held[policy, keep, False].bytes for keep in (0.5, 0.25)] == [0.5, 0.25]
    for keep in (0.5, 0.25):
        for shared in (False, True):
            ours = held["entropy", keep, shared]
            for other in ("random", "recent"):
                assert ours.mass.value > held[other, keep, shared].mass.value
                assert ours.error.value < held[other, keep, shared].error.value
    assert held["entropy", 0.25, False].mass.value <= held["entropy", 0.5, False].mass.value


def test_zeroed_keys_save_nothing_and_keep_attention() -> None:
    share, kept = pruning.zeroing(kernels, keep=0.7, spread=1.0)
    assert share == 1.0 and 0.1 < kept < 0.3
