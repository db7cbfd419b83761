"""What segmented promises besides the right answer: little memory, work skipped."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernels.registry import get
from kernels.segmented import blocks

from .helpers import normal, qkv


def peak_bytes(call: Callable[[], object]) -> int:
    """Highest sum of the allocator's events during ``call``; exact and repeatable on a CPU."""
    call()
    with torch.profiler.profile(profile_memory=True) as profile:
        call()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    level = top = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        level += event.nbytes()
        top = max(top, level)
    return top


@pytest.mark.parametrize("backward", [False, True])
def test_memory_stays_far_below_math(backward: bool) -> None:
    q, k, v = qkv(1, 4, 4, 1024, 1024, 32)

    def call(name: str) -> Callable[[], object]:
        function = get(name).load("attention")
        if not backward:
            return lambda: function(q, k, v, causal=True)
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        return lambda: torch.autograd.grad(function(*leaves, causal=True).sum(), leaves)

    segmented, math = peak_bytes(call("segmented")), peak_bytes(call("sdpa_math"))
    assert segmented < math / 4


def test_workspace_grows_with_kv_len_not_with_q_len() -> None:
    function = get("segmented").load("attention")
    _, k, v = qkv(1, 2, 2, 1, 1024, 16)

    def workspace(q_len: int) -> int:
        q = normal(1, 2, q_len, 16)
        return peak_bytes(lambda: function(q, k, v)) - q.nbytes

    assert workspace(1024) <= workspace(256) * 1.1


@pytest.mark.parametrize(
    "causal, window, expected",
    [(False, None, 16 * 2048 * 128), (True, None, sum(128 * (i + 1) for i in range(16)) * 128)],
)
def test_invisible_keys_are_skipped(causal: bool, window: int | None, expected: int) -> None:
    rule = blocks.Rule(causal, True, window, None, 1.0)
    tiles = list(blocks._tiles([blocks.Segment(0, 2048, 0, 2048)], rule))
    assert sum((t.j - t.i) * (t.high - t.low) for t in tiles) == expected


def test_a_window_reads_a_band() -> None:
    rule = blocks.Rule(True, True, 128, None, 1.0)
    tiles = list(blocks._tiles([blocks.Segment(0, 2048, 0, 2048)], rule))
    assert max(t.high - t.low for t in tiles) == 255


def test_blocks_that_see_nothing_are_left_out() -> None:
    rule = blocks.Rule(True, True, None, None, 1.0)
    tiles = list(blocks._tiles([blocks.Segment(0, 512, 0, 10)], rule))
    assert [(t.i, t.j) for t in tiles] == [(384, 512)]


def test_no_gradient_for_the_mask_is_an_error() -> None:
    q, k, v = qkv(1, 1, 1, 4, 4, 4)
    mask = torch.zeros(4, 4, requires_grad=True)
    with pytest.raises(NotImplementedError, match="mask"):
        get("segmented").load("attention")(q, k, v, mask=mask)


def test_nan_in_the_inputs_is_not_hidden() -> None:
    q, k, v = qkv(1, 1, 1, 4, 4, 4)
    q[0, 0, 2, 1] = float("nan")
    out = get("segmented").load("attention")(q, k, v, mask=torch.ones(4, 4, dtype=torch.bool))
    assert bool(torch.isnan(out[0, 0, 2]).all())
    assert bool(torch.isfinite(out[0, 0, :2]).all())
