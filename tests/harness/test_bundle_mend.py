"""What the writer makes of records that a reader would refuse."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.bundle import (
    BundleWriter,
    Controls,
    read_bundle,
)
from harness.model import (
    Case,
    InputError,
    Measurement,
    RunEnd,
    Status,
    Value,
    Workload,
)
from harness.model.bounds import wrong_in
from tests.db.factory import make_run

from .bundles import (
    LONG_NAME,
    LONG_TEXT,
    at,
    cases,
    counts,
    exactly,
    names,
    scalars,
    simple_measurement,
    texts,
    write,
)

any_float = st.floats()
wild_values = st.builds(Value, any_float, st.none() | any_float, st.none() | any_float, counts)
wild_text = texts | st.sampled_from([LONG_TEXT, LONG_NAME])
wild_scalars = scalars | any_float | wild_text
wild_cases = st.builds(
    Case, texts, st.builds(Workload, texts, st.dictionaries(names, wild_scalars, max_size=3), any_float), texts, texts
)
wild = st.builds(
    Measurement, st.one_of(cases, cases, wild_cases), st.just(Status.OK), at, st.floats(0, 1e9) | any_float, wild_text,
    st.integers(1, 9), st.dictionaries(names | st.just("latency_s"), wild_values, max_size=3),
    st.dictionaries(names | st.just("latency_s"), st.lists(any_float, max_size=3), max_size=2), st.just({}),
    st.just({}), wild_text, st.lists(wild_text, max_size=2),
    st.dictionaries(texts | st.just("kernel_s"), wild_scalars, max_size=3),
)  # fmt: skip
failed = st.builds(
    lambda m: dataclasses.replace(m, status=Status.CRASHED, detail=m.detail or "it crashed", metrics={}), wild
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(wild | failed)
def test_whatever_is_written_is_read(tmp_path: Path, m: Measurement) -> None:
    path = tmp_path / "b.jsonl"
    path.unlink(missing_ok=True)
    bare = Measurement(m.case, Status.INVALID, m.started_at, detail="x")
    with BundleWriter(path) as out:
        try:
            out.measurement("r", m)
        except InputError as error:
            assert wrong_in(bare) is not None, "only a case that cannot be is refused"
            assert "field case." in str(error)
            assert path.read_bytes() == b""
            return
    (line,) = read_bundle(path)
    assert isinstance(line.record, Measurement)
    assert (line.record.case.key, line.record.attempt) == (m.case.key, m.attempt)
    if wrong_in(m) is None:
        assert exactly(line.record) == exactly(m)
    if line.record.status is Status.INVALID:
        assert "field " in line.record.detail and not line.record.metrics
    else:
        assert line.record.status is m.status


@pytest.mark.parametrize("run_id", ["", LONG_NAME])
def test_a_run_without_a_usable_id_is_not_written(tmp_path: Path, run_id: str) -> None:
    path = tmp_path / "b.jsonl"
    for item in (
        ("run", run_id, dataclasses.replace(make_run(), id=run_id)),
        ("measurement", run_id, simple_measurement()),
        ("controls", run_id, Controls(run_id, {"control_gemm_s": Value(1.0)})),
        ("end", run_id, RunEnd(run_id, 1.0)),
    ):
        with pytest.raises(InputError, match=r"field run_id: .* has not 1 to 512 characters"):
            write(path, [item])
        assert path.read_bytes() == b""


def test_a_sample_of_no_time_makes_the_measurement_invalid(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    m = simple_measurement(metrics={"latency_s": Value(1.0)}, samples={"latency_s": [1.0, 0.0]}, telemetry={"a": 1})
    write(path, [("measurement", "r", m)])
    (line,) = read_bundle(path)
    assert isinstance(line.record, Measurement)
    assert (line.record.status, line.record.samples, line.record.telemetry) == (Status.INVALID, {}, {"a": 1})
    assert "field samples.latency_s[1]: 0.0 is no finite number above 0" in line.record.detail


def test_an_end_is_never_written_before_its_start(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    run = make_run()
    write(path, [("run", run.id, run), ("end", run.id, RunEnd(run.id, run.started_at - 5.0))])  # a clock set back
    assert [line.record for line in read_bundle(path)][1] == RunEnd(run.id, run.started_at)
