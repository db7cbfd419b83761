"""Records survive the way to JSON and back exactly; nothing else comes through."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model import (
    Case,
    Environment,
    InputError,
    Machine,
    Measurement,
    MeasureOptions,
    Revision,
    Run,
    Status,
    Value,
    Workload,
)
from harness.model.serde import from_plain, to_plain

_float = st.floats(allow_nan=False, allow_infinity=False)
_text = st.text(max_size=20)
_scalar = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), _float, _text)
_case = st.builds(
    Case, _text, st.builds(Workload, _text, st.dictionaries(_text, _scalar, max_size=4), _float), _text, _text
)
_value = st.builds(Value, _float, st.none() | _float, st.none() | _float, st.integers(0, 10**6))
_measurement = st.builds(
    Measurement,
    _case,
    st.sampled_from(Status),
    _float,
    _float,
    st.text(min_size=1, max_size=30),
    st.integers(1, 3),
    st.dictionaries(st.sampled_from(["peak_memory_bytes", "x"]), _value, max_size=2),
    st.dictionaries(_text, st.lists(_float, max_size=4), max_size=2),
    operators=st.lists(_text, max_size=3),
    telemetry=st.dictionaries(_text, _scalar, max_size=3),
)


@given(_measurement)
def test_measurement_round_trip(m: Measurement) -> None:
    line = json.dumps(to_plain(m), allow_nan=False)
    back = from_plain(Measurement, json.loads(line))
    assert back == m
    assert [type(v) for v in back.telemetry.values()] == [type(v) for v in m.telemetry.values()]
    assert json.dumps(to_plain(back)) == line


@given(st.builds(MeasureOptions, st.none() | _float, st.integers(), st.integers(), _float, _float, hot=st.booleans()))
def test_options_round_trip(options: MeasureOptions) -> None:
    assert from_plain(MeasureOptions, json.loads(json.dumps(to_plain(options)))) == options


def test_run_and_environment_round_trip() -> None:
    run = Run(
        "r", "smoke", Revision("abc+dirty.1", "abc", True, 1.5),
        Environment(Machine("cpu", "m"), packages={"torch": "2"}), 3.25,
        options={"seed": 1, "rel": 0.05, "where": None},
    )  # fmt: skip
    back = from_plain(Run, json.loads(json.dumps(to_plain(run))))
    assert back == run and back.environment.hash == run.environment.hash


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_refused_both_ways(bad: float) -> None:
    with pytest.raises(InputError, match=r"value\.value is"):
        to_plain(Value(bad))
    with pytest.raises(InputError, match=r"value\.value .*finite"):
        from_plain(Value, {"value": bad})


def test_values_without_a_form_are_refused_by_name() -> None:
    case = Case("b", Workload("attention", {"batch": object()}), "x")  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"case\.workload\.params\.batch has type object"):
        to_plain(case)
    with pytest.raises(InputError, match="not a record"):
        to_plain({"a": 1})


def _plain() -> dict[str, Any]:
    return to_plain(Measurement(Case("b", Workload("attention", {"batch": 1}), "x"), Status.WRONG, 1.0, detail="d"))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("status", "fine", "measurement.status is 'fine'; expected one of ok"),
        ("status", None, "measurement.status is None"),
        ("attempt", 1.0, "measurement.attempt is 1.0; expected an integer"),
        ("attempt", True, "expected an integer"),
        ("started_at", True, "expected a number"),
        ("started_at", 10**400, "expected a finite number"),
        ("detail", 3, "expected text"),
        ("detail", "", "needs a detail"),
        ("operators", "abc", "expected a list"),
        ("samples", {"latency_s": [1, "x"]}, r"samples\.latency_s\[1\] is 'x'"),
        ("metrics", {"m": {"value": 1.0, "unit": "s"}}, "unknown field 'unit'"),
        ("metrics", {"m": {}}, "lacks field 'value'"),
        ("telemetry", {"t": [1]}, r"telemetry\.t is \[1\]"),
        ("surprise", 1, "unknown field 'surprise'"),
        ("case", [], "expected an object"),
    ],
)
def test_bad_fields_are_named(path: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_plain(Measurement, {**_plain(), path: value})


@given(st.recursive(_scalar, lambda c: st.lists(c, max_size=3) | st.dictionaries(_text, c, max_size=3)))
def test_any_json_is_a_record_or_an_input_error(value: object) -> None:
    for plain in (value, {**_plain(), "case": value}, {**_plain(), "metrics": value}):
        try:
            from_plain(Measurement, plain)
        except InputError as error:
            assert str(error).startswith("measurement")
