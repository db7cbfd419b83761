"""Keys, labels and records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model import Case, Environment, Machine, Measurement, Status, Workload, content_key, label, parse_label

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
PARAMS = st.dictionaries(NAMES, SCALARS, max_size=5)


@given(PARAMS)
def test_label_is_reversible(params: dict[str, object]) -> None:
    back = parse_label(label(params))  # type: ignore[arg-type]
    assert back == params
    assert [type(v) for v in back.values()] == [type(v) for v in params.values()]


@given(st.text(max_size=40))
def test_parse_label_evaluates_nothing(text: str) -> None:
    try:
        parsed = parse_label(text)
    except (ValueError, SyntaxError):
        return
    assert all(v is None or isinstance(v, bool | int | float | str) for v in parsed.values())


@given(PARAMS, PARAMS)
def test_keys_are_injective_and_ignore_order(a: dict[str, object], b: dict[str, object]) -> None:
    def typed(params: dict[str, object]) -> set[tuple[str, str, object]]:
        return {(k, type(v).__name__, repr(v)) for k, v in params.items()}

    assert (content_key(a) == content_key(b)) == (typed(a) == typed(b))
    assert content_key(dict(reversed(a.items()))) == content_key(a)


def test_keys_do_not_collide_through_separators() -> None:
    assert content_key("a", "b,c") != content_key("a,b", "c")
    assert content_key({"a": "1,b:2"}) != content_key({"a": "1", "b": "2"})


def test_weight_is_not_identity() -> None:
    one = Case("prefill", Workload("attention", {"batch": 1}, weight=1.0), "sdpa_math")
    two = Case("prefill", Workload("attention", {"batch": 1}, weight=9.0), "sdpa_math")
    assert one.key == two.key
    assert one.key != Case("prefill", one.workload, "sdpa_math", benchmark_version="2").key


def test_software_under_test_is_not_series_identity() -> None:
    machine = Machine("cuda", "NVIDIA H200")
    old = Environment(machine, packages={"torch": "2.12"}, kernels_hash="a")
    new = Environment(Machine("cuda", "NVIDIA H200", host="other", board_uuid="x"), packages={"torch": "2.13"})
    assert old.machine.fingerprint == new.machine.fingerprint
    assert old.hash != new.hash
    assert Machine("cuda", "NVIDIA H200", clock_policy="locked:1500").fingerprint != machine.fingerprint


def test_failed_measurement_needs_a_reason() -> None:
    case = Case("b", Workload("attention", {}), "x")
    with pytest.raises(ValueError, match="needs a detail"):
        Measurement(case, Status.CRASHED, 0.0)
