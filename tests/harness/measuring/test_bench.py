from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from harness.measuring import Bench, CaseFailed
from harness.measuring.timing.clock import Account, Call
from harness.model import METRICS, Case, MeasureOptions, Scalar, Status

from .conftest import QUICK

Make = Callable[..., Case]

OF_ATTENTION = {
    "latency_s", "latency_hot_s", "flops_per_s", "tokens_per_s", "bytes_per_s", "peak_memory_bytes", "output_bytes",
    "workspace_bytes", "input_bytes", "kv_cache_bytes", "kv_model_bytes", "operator_calls", "max_abs_error",
    "max_rel_error", "peak_results_bytes", "peak_workspace_bytes",
}  # fmt: skip

RAGGED = {"batch": 3, "q_lens": "1,0,7", "kv_lens": "21,5,7", "q_len": 7, "kv_len": 21}


def test_ok_has_all_metrics_samples_and_telemetry(bench: Bench, case: Make) -> None:
    got = bench.measure(case(), QUICK)
    assert got.status is Status.OK, got.detail
    assert set(got.metrics) - {"first_call_s"} == OF_ATTENTION  # the first call is told to whichever test comes first
    assert set(METRICS) >= OF_ATTENTION
    latency = got.metrics["latency_s"]
    samples = sorted(got.samples["latency_s"])
    assert latency.n == len(samples) == 6
    assert (latency.low, latency.high) == (samples[0], samples[-1])
    assert latency.value == pytest.approx((samples[2] + samples[3]) / 2)
    assert got.warmup["latency_s"] and got.warmup["latency_hot_s"]
    assert got.stop_reason in ("interval", "count")
    pairs = 16 * 17 // 2
    assert got.metrics["flops_per_s"].value == pytest.approx(4 * 8 * 2 * pairs / latency.value)
    assert got.metrics["input_bytes"].value == 3 * 2 * 16 * 8 * 4
    assert got.telemetry["implementation"] == "attention_fakes:good"
    assert str(got.telemetry["implementation_path"]).endswith("attention_fakes.py")
    assert got.telemetry["kernels_hash"] == bench.environment().kernels_hash
    assert got.telemetry["threads"] == torch.get_num_threads()
    parts = sum(float(got.telemetry[f"{p}_s"] or 0) for p in ("kernel", "flush", "inputs", "oracle", "harness"))
    assert parts == pytest.approx(got.duration_s)


@pytest.mark.parametrize(
    ("function", "status", "words"),
    [
        ("wrong_value", Status.WRONG, ["out[0, 1, 2, 3]", "the oracle says", "error 0.25", "1 of 256"]),
        ("not_a_number", Status.NON_FINITE, ["out has 1 of 256", "nan at [0, 0, 1, 2]"]),
        ("writes_inputs", Status.WRONG, ["wrote into its inputs"]),
        ("writes_inputs_later", Status.WRONG, ["wrote into its inputs"]),
        ("wrong_shape", Status.WRONG, ["(1, 16, 2, 8)", "(1, 2, 16, 8)"]),
        ("no_tensor", Status.WRONG, ["NoneType"]),
        ("too_large", Status.OUT_OF_MEMORY, ["first call", "allocate"]),
        ("memory_error", Status.OUT_OF_MEMORY, ["MemoryError"]),
        ("not_implemented", Status.UNSUPPORTED, ["head_dim 8 is not supported by this kernel"]),
        ("raises", Status.CRASHED, ["KeyError", "no tile for", "in raises at", "attention_fakes.py:"]),
        ("exits", Status.CRASHED, ["SystemExit: 3"]),
        ("missing", Status.UNSUPPORTED, ["missing"]),
    ],
)
def test_failures_become_status_and_detail(
    bench: Bench, case: Make, function: str, status: Status, words: list[str]
) -> None:
    got = bench.measure(case(function), QUICK)
    assert got.status is status, got.detail
    assert all(word in got.detail for word in words), got.detail
    assert "latency_s" not in got.metrics and not got.samples


@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_values_of_another_head_size_are_gated_and_timed_or_refused(bench: Bench, case: Make, direction: str) -> None:
    shape: dict[str, Any] = {"head_dim": 24, "head_dim_v": 16, "direction": direction}
    got = bench.measure(case(backend="sdpa_math", **shape), QUICK)
    assert got.status is Status.OK, got.detail
    products = 24 + 16 if direction == "fwd" else 3 * 24 + 2 * 16
    flops = got.metrics["flops_per_s"].value * got.metrics["latency_s"].value
    assert flops == pytest.approx(2 * products * 2 * 16 * 17 / 2)
    refused = bench.measure(case(backend="segmented", **shape), QUICK)
    assert refused.status is Status.UNSUPPORTED and "head_dim_v 16 is not head_dim 24" in refused.detail


@pytest.mark.parametrize("stored", ["float8_e4m3fn", "float8_e5m2"])
def test_keys_and_values_of_eight_bits_are_gated_and_timed_or_refused(bench: Bench, case: Make, stored: str) -> None:
    got = bench.measure(case("widened", kv_dtype=stored), QUICK)
    assert got.status is Status.OK, got.detail
    assert got.metrics["input_bytes"].value == 2 * 16 * 8 * (4 + 1 + 1)
    refused = bench.measure(case(backend="sdpa_math", kv_dtype=stored), QUICK)
    assert refused.status is Status.UNSUPPORTED and f"kv_dtype {stored}" in refused.detail


def test_unwritten_rows_do_not_pass_for_the_last_right_answer(bench: Bench, case: Make) -> None:
    assert bench.measure(case("good", q_len=64, kv_len=64), QUICK).status is Status.OK
    got = bench.measure(case("partly_unwritten", q_len=64, kv_len=64), QUICK)
    assert got.status in (Status.NON_FINITE, Status.WRONG)
    assert ", 63, " in got.detail


@pytest.mark.parametrize("function", ["too_large", "raises"])
def test_a_failed_case_frees_its_memory(bench: Bench, case: Make, fakes: Any, function: str) -> None:
    bench.measure(case(function), QUICK)
    assert fakes.left_behind
    assert all(reference() is None for reference in fakes.left_behind)


def test_spoilt_inputs_are_made_anew(bench: Bench, case: Make) -> None:
    assert bench.measure(case("writes_inputs", q_len=8, kv_len=8), QUICK).status is Status.WRONG
    assert bench.measure(case("good", q_len=8, kv_len=8), QUICK).status is Status.OK


def test_gradients_are_checked(bench: Bench, case: Make) -> None:
    assert bench.measure(case("good", direction="bwd"), QUICK).status is Status.OK
    got = bench.measure(case("wrong_grad", direction="bwd"), QUICK)
    assert got.status is Status.WRONG
    assert got.detail.startswith("grad_v[")


def test_without_check_a_wrong_kernel_is_timed(bench: Bench, case: Make) -> None:
    got = bench.measure(
        case("wrong_value", q_len=4, kv_len=4), MeasureOptions(check=False, max_samples=6, memory=False, hot=False)
    )
    assert got.status is Status.OK
    assert {"max_abs_error", "peak_memory_bytes", "latency_hot_s"}.isdisjoint(got.metrics)


def test_interrupt_passes(bench: Bench, case: Make) -> None:
    with pytest.raises(KeyboardInterrupt):
        bench.measure(case("interrupted"), QUICK)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"dtype": "float13"}, ["dtype", "float13", "bfloat16"]),
        ({"batch": 0}, ["batch", "0"]),
        ({"heads_q": 3}, ["heads_q", "3", "heads_kv"]),
        ({"operation": "attentoin"}, ["attentoin", "varlen_attention"]),
        ({"direction": "sideways"}, ["sideways"]),
    ],
)
def test_bad_workloads_are_invalid(bench: Bench, case: Make, more: dict[str, Any], words: list[str]) -> None:
    got = bench.measure(case(**more), QUICK)
    assert got.status is Status.INVALID
    assert all(word in got.detail for word in words), got.detail


def test_unknown_backend_is_unsupported_with_a_hint(bench: Bench, case: Make) -> None:
    got = bench.measure(case(backend="sdpa_flush"), QUICK)
    assert got.status is Status.UNSUPPORTED
    assert "sdpa_flash" in got.detail


def test_first_call_is_only_told_once(bench: Bench, case: Make) -> None:
    one = case("good", q_len=5, kv_len=5)
    assert "first_call_s" in bench.measure(one, QUICK).metrics
    assert "first_call_s" not in bench.measure(one, QUICK).metrics


def test_reference_is_shared_by_backends(bench: Bench, case: Make) -> None:
    bench.measure(case("good", q_len=6, kv_len=6), QUICK)
    got = bench.measure(case("known_workspace", q_len=6, kv_len=6), QUICK)
    assert got.telemetry["oracle_s"] == 0.0 and got.telemetry["inputs_s"] == 0.0


def test_rates_have_swapped_bounds(bench: Bench, case: Make) -> None:
    got = bench.measure(case(), QUICK).metrics
    for name in ("flops_per_s", "tokens_per_s", "bytes_per_s"):
        rate, latency = got[name], got["latency_s"]
        assert rate.low is not None and rate.high is not None and latency.high is not None
        assert rate.low <= rate.value <= rate.high
        assert rate.low / rate.value == pytest.approx(latency.value / latency.high)


@pytest.mark.parametrize(
    ("backend", "operation", "more"),
    [
        ("sdpa_flash", "attention", {"mask": "bool:padding", "causal": False}),
        ("sdpa_math", "attention", {"mask": "additive", "kv_len": 33, "heads_q": 6}),
        ("sdpa_math", "attention", {"layout": "bshd", "direction": "bwd"}),
        ("sdpa_flash", "attention", {"layout": "expanded_kv", "dtype": "bfloat16"}),
        ("segmented", "attention", {"kv_len": 9, "window": 4}),
        ("segmented", "varlen_attention", RAGGED),
        ("sdpa_padded", "varlen_attention", {**RAGGED, "direction": "bwd"}),
        ("paged", "paged_attention", {"batch": 3, "q_lens": "1,2,7", "kv_lens": "21,2,32", "page_size": 16}),
        ("paged_gather", "paged_attention", {"batch": 2, "q_lens": "1,2", "kv_lens": "21,2", "page_size": 1}),
    ],
)
def test_real_backends_pass_the_gate(
    bench: Bench, case: Make, backend: str, operation: str, more: dict[str, Any]
) -> None:
    got = bench.measure(case(backend=backend, operation=operation, **more), QUICK)
    assert got.status is Status.OK, got.detail


def test_prepared_cases_are_sampled_until_released(bench: Bench, case: Make) -> None:
    prepared = bench.prepare(case(), QUICK)
    assert len(prepared.sample(3)) == 3
    prepared.release()
    prepared.release()
    with pytest.raises(CaseFailed, match="release"):
        prepared.sample(1)


class _Throttled:
    """Every cold sample is discarded."""

    flush_bytes = 0

    def sample(self, call: Call, account: Account, *, cold: bool) -> tuple[float, str]:
        call()
        return 1.0, "throttled"

    def once(self, call: Call, account: Account) -> tuple[object, float]:
        return call(), 1.0

    def take(self) -> object:
        return None

    def telemetry(self) -> dict[str, Scalar]:
        return {}


class _Counting(_Throttled):
    """Samples of a given length; notes how many were asked for."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.asked = seconds, 0

    def sample(self, call: Call, account: Account, *, cold: bool) -> tuple[float, str]:
        call()
        self.asked += 1
        return self.seconds, ""


@pytest.mark.parametrize(("seconds", "tries"), [(1e-4, 3), (0.5, 2)])
def test_the_first_of_a_turn_is_left_out_where_calls_are_short(case: Make, seconds: float, tries: int) -> None:
    clock = _Counting(seconds)
    prepared = Bench("cpu", clock=clock).prepare(case(), QUICK)
    before = clock.asked
    assert prepared.sample(2) == [seconds] * 2
    assert clock.asked - before == tries


def test_prepare_gates(bench: Bench, case: Make) -> None:
    with pytest.raises(CaseFailed) as failed:
        bench.prepare(case("wrong_value"), QUICK)
    assert failed.value.status is Status.WRONG


def test_nothing_but_discarded_samples_is_invalid(case: Make) -> None:
    got = Bench("cpu", clock=_Throttled()).measure(case(), MeasureOptions(max_samples=6, hot=False))
    assert got.status is Status.INVALID
    assert got.discarded == {"throttled": 6}


def test_controls(bench: Bench) -> None:
    values, samples = bench.controls(QUICK)
    assert set(values) == set(samples) == {"control_gemm_s", "control_copy_s"}
    assert all(values[n].n == len(samples[n]) >= 6 and values[n].value > 0 for n in values)


def test_reports_say_why_not(bench: Bench) -> None:
    reports = {r.name: r for r in bench.reports()}
    assert reports["sdpa_math"].usable
    assert not reports["sdpa_cudnn"].usable and reports["sdpa_cudnn"].reason
