"""Printed values, names, units: what each becomes."""

from __future__ import annotations

from typing import Any

import pytest

from harness.model import metric
from harness.readers.fitting import case_of, clip, fit_columns
from harness.readers.literals import counted, identifier, identifiers, scalar_of
from harness.readers.units import measure_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-2.5", -2.5), ("'a b'", "a b"), ('"q"', "q"), ("True", True), ("None", None), ("nan", "nan"),
        ("9" * 30, hex(int("9" * 30))), ("{1: [2]}", "{1: [2]}"), ("u'x'", "x"), ("np.int64(4)", 4),
        ("numpy.float32(1.5)", 1.5), ("np.str_('s')", "s"), ("<class 'a.B'>", "a.B"), ("1 (0)", "1 (0)"),
        ("<a.B object at 0x7f0012ab>", "<a.B object>"), ("os.system('x')", "os.system('x')"), ("1j", "1j"), ("", ""),
    ],
)  # fmt: skip
def test_printed_values(text: str, value: Any) -> None:
    assert (type(scalar_of(text)), scalar_of(text)) == (type(value), value)


def test_long_and_deep_texts_stay_short_and_apart() -> None:
    deep = "[" * 1000 + "]" * 1000
    assert scalar_of(deep) != scalar_of(deep + " ") and len(str(scalar_of(deep))) <= 400
    assert len(str(scalar_of(repr("x" * 5000)))) <= 400


def test_names() -> None:
    assert [identifier(n) for n in ("n", "kv len", "1st", "class", "benchmark", "é", "", "%", "status")] == [
        "n", "kv_len", "_1st", "class_", "benchmark_", "é", "param", "param", "status_",
    ]  # fmt: skip
    assert identifiers(["a b", "a-b", "a_b"]) == ["a_b", "a_b_2", "a_b_3"]
    assert counted(["1", "2", "1"]) == ["1 (0)", "2", "1 (1)"] and counted(["1", "2"]) == ["1", "2"]


def test_parameters_of_shared_names_that_mean_something_else() -> None:
    assert fit_columns(["dtype", "batch", "n"], [["float32", "int8"], [1, 2], [0.5]]) == ["dtype_", "batch", "n"]
    case = case_of("b" * 2000, "op", {"dtype": "int8", "heads_q": 3, "heads_kv": 2, "status": 1, "n": 1}, "x")
    assert list(case.workload.params) == ["dtype_", "heads_q", "heads_kv_", "status_", "n"]
    assert len(case.benchmark) <= 512 and clip("short") == "short"


@pytest.mark.parametrize(
    ("unit", "better", "name", "factor", "direction"),
    [
        ("ns/iter", None, "latency_s", 1e-9, "lower"), ("µs", None, "latency_s", 1e-6, "lower"),
        ("ms/op", "lower", "latency_s", 1e-3, "lower"), ("seconds", None, "latency_s", 1.0, "lower"),
        ("ms", "higher", "latency_s_higher", 1e-3, "higher"), ("MB/s", None, "bytes_per_s", 1e6, "higher"),
        ("MiB/s", None, "bytes_per_s", 2.0**20, "higher"), ("ops/sec", None, "ops_per_s", 1.0, "higher"),
        ("req/s", "lower", "req_per_s_lower", 1.0, "lower"), ("bytes", None, "memory_bytes", 1.0, "lower"),
        ("KiB", None, "memory_bytes", 1024.0, "lower"), ("B/op", None, "memory_bytes", 1.0, "lower"),
        ("allocs/op", "lower", "value_allocs", 1.0, "lower"), ("%", "higher", "value_percent_higher", 1.0, "higher"),
        ("TFLOP/s", None, "flops_per_s", 1e12, "higher"), ("", "lower", "value", 1.0, "lower"),
        ("points", None, "value_points_any", 1.0, "none"),
    ],
)  # fmt: skip
def test_units(unit: str, better: Any, name: str, factor: float, direction: str) -> None:
    measure = measure_of(unit, better)
    assert (measure.metric, metric(name).better) == (name, direction) and measure.factor == pytest.approx(factor)
