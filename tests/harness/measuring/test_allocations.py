"""The peak in parts: by hand, from a real profile, and for the phases of a layer."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import record_function

from harness.measuring import Bench
from harness.measuring.allocations import PARTS, Change, attribute
from harness.measuring.memory import footprint
from harness.model import Case, Scalar, Status, Workload

from .conftest import QUICK

CPU = torch.device("cpu")
KIB = 1 << 10


def test_parts_by_hand() -> None:
    found = [
        Change(1, 10, 100, "cpu", "kv_cache", 3),  # outlives its range
        Change(2, 11, 50, "cpu", "kv_cache", 3),  # freed inside it
        Change(2, 12, 7, "cpu"),  # returned
        Change(2, 13, 5, "cpu"),  # freed by the call
        Change(2, 14, 2, "cpu"),  # kept, and not returned
        Change(3, 11, -50, "cpu"),
        Change(8, 13, -5, "cpu"),
        Change(9, 10, -100, "cpu"),
    ]
    peak, parts = attribute(found, {12})
    assert peak == 164
    assert {k: v for k, v in parts.items() if v} == {"kv_cache": 100, "workspace": 55, "results": 7, "other": 2}
    _, backward = attribute(found, {12}, results_are="gradients")
    assert backward["gradients"] == 7 and backward["results"] == 0
    # What the allocator knows beyond the events is not explained by them.
    assert attribute(found, {12}, peak=200)[1]["other"] == 38


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-40, 40)), max_size=40))
def test_parts_sum_to_the_peak_whatever_the_events(steps: list[tuple[int, int]]) -> None:
    found = [Change(i, ptr, size, "cpu") for i, (ptr, size) in enumerate(steps) if size]
    peak, parts = attribute(found, {1})
    assert sum(parts.values()) == peak >= 0
    now = highest = 0
    for c in found:
        now += c.size
        highest = max(highest, now)
    assert peak == highest


def test_a_real_call_with_named_ranges() -> None:
    def call() -> torch.Tensor:
        with record_function("memory.kv_cache"):
            cache = torch.empty(64 * KIB, dtype=torch.uint8)
            scratch = torch.empty(16 * KIB, dtype=torch.uint8)
            del scratch
        out = torch.empty(8 * KIB, dtype=torch.uint8)
        space = torch.empty(32 * KIB, dtype=torch.uint8)
        del cache, space
        return out

    got = footprint(call, [], CPU)
    assert got.peak == 104 * KIB
    assert {k: v for k, v in got.parts.items() if v} == {
        "kv_cache": 64 * KIB, "results": 8 * KIB, "workspace": 32 * KIB,
    }  # fmt: skip


def step(phase: str, backend: str = "step_segmented", **more: Scalar) -> Case:
    params: dict[str, Scalar] = {
        "phase": phase, "batch": 2, "q_len": 256, "kv_len": 256, "heads_q": 2, "heads_kv": 1, "head_dim": 16,
        "dtype": "float32", **more,
    }  # fmt: skip
    return Case("x", Workload("model_step", params), backend)


def test_the_phases_of_a_layer_are_attributed_and_sum_to_the_peak(bench: Bench) -> None:
    made = {p: bench.measure(step(p, chunk=64), QUICK) for p in ("prefill", "chunked_prefill", "train")}
    made["decode"] = bench.measure(step("decode", q_len=1), QUICK)
    for phase, got in made.items():
        assert got.status is Status.OK, (phase, got.detail)
        parts = [got.metrics.get(f"peak_{p}_bytes") for p in PARTS]
        assert sum(v.value for v in parts if v) == got.metrics["peak_memory_bytes"].value
    cache = 2 * 2 * 256 * 16 * 4
    for phase in ("prefill", "chunked_prefill"):
        assert made[phase].metrics["peak_kv_cache_bytes"].value == cache
        assert "peak_gradients_bytes" not in made[phase].metrics, "generation has no gradients"
    assert made["decode"].metrics["kv_cache_bytes"].value == cache == made["decode"].metrics["kv_model_bytes"].value
    # The remedy: chunks of 64 need less than half of what the whole prompt needs.
    whole, chunks = (made[p].metrics["peak_memory_bytes"].value for p in ("prefill", "chunked_prefill"))
    assert chunks < whole / 2
    assert made["train"].metrics["peak_activations_bytes"].value >= 256 * 2 * 2 * 16 * 4


def test_gradients_and_the_optimiser_of_a_wide_layer(bench: Bench) -> None:
    got = bench.measure(step("train", batch=1, q_len=8, kv_len=8, heads_q=8, heads_kv=8, head_dim=32), QUICK)
    weights = (3 + 1) * 256 * 256 * 4
    assert got.status is Status.OK, got.detail
    assert got.metrics["peak_gradients_bytes"].value == weights
    assert got.metrics["peak_optimiser_bytes"].value == weights
    assert got.metrics["peak_memory_bytes"].value == sum(
        v.value for n, v in got.metrics.items() if n.startswith("peak_") and n != "peak_memory_bytes"
    )


def test_results_of_a_backward_pass_are_gradients(bench: Bench) -> None:
    from harness.model.suite import grid

    (work,) = grid("attention", seq_len=64, heads_q=2, head_dim=16, causal=True, direction="bwd")
    got = bench.measure(Case("x", work, "segmented"), QUICK)
    assert got.metrics["peak_gradients_bytes"].value >= got.metrics["output_bytes"].value * 2 / 3


@pytest.mark.parametrize(("limit", "status"), [(64 << 20, Status.OK), (1 << 20, Status.OUT_OF_MEMORY)])
def test_running_out_within_a_limit_is_real_and_the_process_goes_on(bench: Bench, limit: int, status: Status) -> None:
    one = step("prefill", "step_scores", q_len=512, kv_len=512, memory_limit_bytes=limit)
    got = bench.measure(one, QUICK)
    assert got.status is status, got.detail
    if status is Status.OUT_OF_MEMORY:
        assert "allocate memory" in got.detail
        assert "latency_s" not in got.metrics
    after = bench.measure(step("decode", q_len=1), QUICK)
    assert after.status is Status.OK, after.detail


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"q_len": 8}, "q_len: 8; a decode over 256 keys has 1"), ({"memory_limit_bytes": 0}, "at least 1")],
)
def test_bad_steps_name_the_parameter(bench: Bench, changed: dict[str, Scalar], words: str) -> None:
    got = bench.measure(step("decode", **{"q_len": 1, **changed}), QUICK)
    assert got.status is Status.INVALID and words in got.detail
