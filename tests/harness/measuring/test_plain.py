"""Operations beside attention, through the real bench: gate, second question, and the metrics that are theirs."""

from __future__ import annotations

import pytest

from harness.measuring import Bench
from harness.measuring.operations import OPERATIONS
from harness.measuring.params import ParamError
from harness.measuring.timing.cpu import CpuClock
from harness.model import Case, Measurement, Scalar, Status, Workload
from harness.model.suite import bare_grid, ragged

from .conftest import QUICK

NORM = {"rows": 8, "hidden_size": 1024, "amplitude": 0.0, "variance": 100.0, "eps": 1e-5, "dtype": "float16"}
TINY = {"variance": 0.0, "eps": 1e-8}
SOFT = {"rows": 8, "columns": 64, "block": 16, "clip": None, "spread": 8.0, "dtype": "float16"}
GEMM = {"m": 33, "n": 31, "k": 40, "lda": 41, "ldb": 31, "dtype": "float32"}


def measured(bench: Bench, operation: str, backend: str, params: dict[str, Scalar]) -> Measurement:
    return bench.measure(Case("x", Workload(operation, params), backend), QUICK)


def test_the_waste_of_a_fixed_cache_is_counted(bench: Bench) -> None:
    work = ragged("kv_cache", [(1, 16), (1, 48)], layers=2, capacity=128, heads_q=4, heads_kv=2)
    for backend, ratio in (("kv_trimmed", 1.0), ("kv_fixed", 128 * 2 / 64)):
        got = measured(bench, "kv_cache", backend, work.params)
        assert got.status is Status.OK, got.detail
        assert got.metrics["wasted_work_ratio"].value == ratio
        assert got.metrics["kv_model_bytes"].value == 2 * 2 * 2 * 64 * 4 * 64


@pytest.mark.parametrize(
    ("operation", "params"),
    [("layer_norm", NORM), ("layer_norm", NORM | {"direction": "bwd"}), ("softmax", SOFT), ("gemm", GEMM)],
)
def test_sound_backends_pass_the_gate(bench: Bench, operation: str, params: dict[str, Scalar]) -> None:
    from kernels.registry import BACKENDS

    for name in (n for n, b in BACKENDS.items() if operation in b.operations):
        got = measured(bench, operation, name, params)
        assert got.status is Status.OK, (name, got.detail)
        assert 0 <= got.metrics["max_rel_error"].value < 5e-3
        assert got.metrics["flops_per_s"].value > 0 and "kv_model_bytes" not in got.metrics


@pytest.mark.parametrize(
    ("fault", "operation", "backend", "params", "status"),
    [
        ("layer_norm_narrow", "layer_norm", "layer_norm_fp32", NORM, Status.WRONG),
        ("layer_norm_narrow", "layer_norm", "layer_norm_fp32", NORM | {"variance": 1.0}, Status.OK),
        ("layer_norm_narrow_eps", "layer_norm", "layer_norm_fp32", NORM | TINY, Status.NON_FINITE),
        ("softmax_stale_max", "softmax", "softmax_running_max", SOFT | {"rows": 256}, Status.NON_FINITE),
        ("gemm_unaligned_slow", "gemm", "gemm_native", GEMM, Status.OK),
    ],
)
def test_the_gate_sees_what_is_wrong_and_only_that(
    fault: str, operation: str, backend: str, params: dict[str, Scalar], status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNWATCH_FAULTS", fault)
    got = measured(Bench("cpu", clock=CpuClock(llc_bytes=1 << 20)), operation, backend, params)
    assert got.status is status, got.detail


@pytest.mark.parametrize(
    ("operation", "params", "words"),
    [
        ("layer_norm", NORM | {"variance": -1.0}, "variance: -1.0 is negative"),
        ("layer_norm", NORM | {"amplitude": 1e6}, "do not fit into float16"),
        ("layer_norm", NORM | {"eps": None}, "eps: None is no finite number"),
        ("gemm", GEMM | {"lda": 39}, "lda: 39 is no whole number of at least 40"),
        ("softmax", SOFT | {"block": 0}, "block"),
    ],
)
def test_bad_workloads_name_the_parameter(operation: str, params: dict[str, Scalar], words: str) -> None:
    with pytest.raises(ParamError, match=words):
        OPERATIONS[operation].inputs(params, 0, "cpu")


def test_a_cache_that_is_too_small_is_bad_usage() -> None:
    work = ragged("kv_cache", [(1, 200)], layers=1, capacity=128)
    with pytest.raises(ParamError, match="between 1 and capacity, which is 128"):
        OPERATIONS["kv_cache"].inputs(work.params, 0, "cpu")


def test_a_bare_grid_fills_nothing_in() -> None:
    found = bare_grid("gemm", m=[1, 2], k=3)
    assert [w.params for w in found] == [{"m": 1, "k": 3}, {"m": 2, "k": 3}]
