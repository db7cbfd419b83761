"""The bundle: round trip, cut lines, bad lines, many writers."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.bundle import (
    BundleWriter,
    Controls,
    Record,
    bundle_schema,
    encode_line,
    read_bundle,
)
from harness.model import (
    Case,
    Environment,
    InputError,
    Machine,
    Measurement,
    Reason,
    Revision,
    Run,
    RunEnd,
    Status,
    Value,
    Workload,
)
from harness.model.bounds import COUNTED_SUFFIXES, MAX_TIME, wrong_in
from harness.model.params import NAME_CHARS, PARAMETERS, RESERVED, TEXT_CHARS
from tests.db.factory import make_run

SCHEMA = Path(__file__).parents[2] / "docs" / "bundle.schema.json"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,12}", fullmatch=True)
floats = st.floats(allow_nan=False, allow_infinity=False)
at = st.floats(0, MAX_TIME)
counts = st.integers(0, 2**31 - 1)
scalars = st.none() | st.booleans() | st.integers() | floats | texts
positive = st.floats(0, exclude_min=True, allow_infinity=False)


def interval(x: float, n: int, low: bool, high: bool) -> Value:
    return Value(x, x if low else None, x if high else None, n)


values = st.builds(interval, positive, counts, st.booleans(), st.booleans())
timings = st.dictionaries(names, st.lists(positive, max_size=5).filter(lambda x: math.isfinite(sum(x))), max_size=3)
metric_names = names.map(lambda x: x + "_m")
free = names.filter(lambda name: name not in PARAMETERS and name not in RESERVED)
shared = st.sampled_from(
    [{}, {"batch": 2, "q_len": 0, "causal": True, "dtype": "float16", "scale": 0.5, "layout": None, "q_lens": "0,0"}]
)
params = st.builds(lambda a, b: {**a, **b}, shared, st.dictionaries(free, scalars, max_size=4))
cases = st.builds(Case, texts, st.builds(Workload, texts, params, st.floats(0, 1e18)), texts, texts)
telemetry = st.dictionaries(texts.filter(lambda x: not x.endswith(COUNTED_SUFFIXES)), scalars, max_size=3)
common: dict[str, Any] = {
    "case": cases,
    "started_at": at,
    "duration_s": st.floats(0, 1e9),
    "attempt": st.integers(1, 2**31 - 1),
    "discarded": st.dictionaries(texts, counts, max_size=3),
    "stop_reason": texts,
    "operators": st.lists(texts, max_size=3),
    "telemetry": telemetry,
}
measurements = st.builds(
    Measurement, status=st.just(Status.OK), detail=texts, metrics=st.dictionaries(metric_names, values, max_size=4),
    samples=timings, warmup=timings, **common,
) | st.builds(
    Measurement, status=st.sampled_from([s for s in Status if s is not Status.OK]), detail=texts.filter(bool), **common
)  # fmt: skip
strings = st.dictionaries(texts, texts, max_size=3)
machines = st.builds(Machine, texts, texts, texts, texts, texts, st.dictionaries(texts, scalars, max_size=3))
environments = st.builds(Environment, machines, texts, strings, texts, strings, counts, texts, texts, texts)
revisions = st.builds(Revision, texts, st.none() | texts, st.booleans(), st.none() | at, texts, texts)
ids = texts.filter(bool)
runs = st.builds(
    Run, ids, texts, revisions, environments, at, st.sampled_from(Reason), counts, texts,
    st.dictionaries(texts, scalars, max_size=3),
)  # fmt: skip
records = st.one_of(
    runs.map(lambda r: ("run", r.id, r)),
    st.tuples(st.just("measurement"), ids, measurements),
    st.builds(lambda i, v: ("controls", i, Controls(i, v)), ids, st.dictionaries(names, values, max_size=3)),
    st.builds(RunEnd, ids, at, st.booleans(), counts).map(lambda e: ("end", e.run_id, e)),
)


def write(path: Path, items: list[tuple[str, str, Record]]) -> None:
    path.unlink(missing_ok=True)
    with BundleWriter(path) as out:
        for _, run_id, record in items:
            if isinstance(record, Run):
                out.run(record)
            elif isinstance(record, Measurement):
                out.measurement(run_id, record)
            elif isinstance(record, Controls):
                out.controls(run_id, record.values)
            else:
                out.end(record)


def exactly(value: object) -> str:
    """Text that tells 1 from True and 1.0."""
    return repr(dataclasses.asdict(value))  # type: ignore[call-overload]


def simple_measurement(**changes: Any) -> Measurement:
    case = Case("prefill", Workload("attention", {"batch": 1}), "sdpa_math")
    return Measurement(**{"case": case, "status": Status.OK, "started_at": 1.0, **changes})


def ended_after_their_start(items: list[tuple[str, str, Record]]) -> list[tuple[str, str, Record]]:
    """What the writer makes of ends that lie before the start of a run it began: a clock was set back."""
    started: dict[str, float] = {}
    out = []
    for kind, run_id, record in items:
        if isinstance(record, Run):
            started[record.id] = record.started_at
        if isinstance(record, RunEnd) and record.finished_at < started.get(run_id, record.finished_at):
            record = replace(record, finished_at=started[run_id])
        out.append((kind, run_id, record))
    return out


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(st.lists(records, max_size=6))
def test_round_trip(tmp_path: Path, items: list[tuple[str, str, Record]]) -> None:
    path = tmp_path / "b.jsonl"
    write(path, items)
    reader = read_bundle(path)
    lines = list(reader)
    assert [(line.kind, line.run_id, exactly(line.record)) for line in lines] == [
        (kind, run_id, exactly(record)) for kind, run_id, record in ended_after_their_start(items)
    ]
    assert [line.number for line in lines] == list(range(1, len(items) + 1))
    assert reader.warnings == []
    for (_, _, record), line in zip(items, lines, strict=True):
        if isinstance(record, Measurement) and isinstance(line.record, Measurement):
            assert record.case.key == line.record.case.key


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_any_cut_leaves_a_prefix(tmp_path: Path, items: list[tuple[str, str, Record]], data: st.DataObject) -> None:
    path = tmp_path / "b.jsonl"
    write(path, items)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    complete = sum(end - 1 <= cut for end in ends)  # a line that lacks only its newline is whole
    reader = read_bundle(path)
    assert [exactly(line.record) for line in reader] == [exactly(r) for _, _, r in items[:complete]]
    starts = {0, *ends, *(end - 1 for end in ends)}
    assert (reader.truncated is None) == (cut in starts)
    assert len(reader.warnings) == (cut not in starts)
    if reader.warnings:
        assert f"b.jsonl:{complete + 1}: the last line is cut off" in reader.warnings[0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_end_in_records_or_a_clear_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "b.jsonl"
    path.write_bytes(data)
    try:
        list(read_bundle(path))
    except InputError as error:
        assert str(error).startswith(f"{path}:")


GOOD = json.loads(encode_line("measurement", simple_measurement(), run_id="r"))


def case_with(params: dict[str, Any]) -> dict[str, Any]:
    return {**GOOD["case"], "workload": {"operation": "a", "params": params}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "field schema: 2 is newer than 1, .* upgrade attnwatch"),
        ({"schema": 0}, "field schema: 0 is not a bundle schema"),
        ({"schema": None}, r"Expected `int`, got `null` - at `\$\.schema`"),
        ({"kind": "trace"}, "field kind: 'trace' is none of run, measurement, controls, end"),
        ({"run_id": ""}, "run id is empty or missing"),
        ({"status": "fine"}, r"Invalid enum value 'fine' - at `\$\.status`"),
        ({"status": "wrong"}, "a measurement that is wrong needs a detail"),
        ({"attempt": 0}, "field attempt: 0 is not between 1 and"),
        ({"attempt": 2**31}, "field attempt: 2147483648 is not between"),
        ({"attempt": 2**80}, "attempt"),
        ({"started_at": "now"}, r"Expected `float`, got `str` - at `\$\.started_at`"),
        ({"samples": {"latency_s": [1.0, None]}}, r"Expected `float`, got `null` - at `\$\.samples\[\.\.\.\]\[1\]`"),
        ({"metrics": {"latency_s": {"value": 1.0, "n": -1}}}, r"field metrics\.latency_s\.n: -1"),
        ({"discarded": {"throttled": -1}}, r"field discarded\.throttled: -1"),
        ({"case": case_with({"x y": 1})}, r"params\.x y: has a name \('x y'\) that is not an identifier"),
        ({"case": case_with({"x": []})}, r"at `\$\.case\.workload\.params"),
    ],
)  # fmt: skip
def test_bad_line_names_file_line_and_field(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "b.jsonl"
    good = json.dumps(GOOD)
    path.write_text("\n".join((good, "", json.dumps({**GOOD, **change}), good)) + "\n")
    with pytest.raises(InputError, match=rf"b\.jsonl:3: .*{message}"):
        list(read_bundle(path))
    # The same as a last line without its newline: it is complete, so it is wrong and not cut off.
    path.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(InputError, match=r"b\.jsonl:1: "):
        list(read_bundle(path))


@pytest.mark.parametrize(
    "raw",
    [b"[1, 2]\n", b"\xff\xfe\x00\n", b"hello\n", b"hello", b"\x89PNG\r\n\x1a\n", b'{"kind": "end", "run_id": NaN}\n'],
)
def test_files_of_another_kind(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "b.jsonl"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=r"b\.jsonl:1: "):
        list(read_bundle(path))


def test_folders_and_missing_files(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(InputError, match="cannot read this bundle"):
            list(read_bundle(path))
    for path in (tmp_path, tmp_path / "no" / "b.jsonl"):
        with pytest.raises(InputError, match="cannot write a bundle here"):
            BundleWriter(path)


def test_numbers_that_json_lacks_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    odd = simple_measurement(
        metrics={"latency_s": Value(1.0, -math.inf, 2.0), "max_abs_error": Value(math.nan)},
        telemetry={"power_w": math.inf, "load": 0.5},
    )
    write(path, [("measurement", "r", odd)])
    (line,) = read_bundle(path)
    assert isinstance(line.record, Measurement)
    assert line.record.metrics == {"latency_s": Value(1.0, None, 2.0)}
    assert line.record.telemetry == {"power_w": "inf", "load": 0.5, "non_finite.max_abs_error": "nan"}


def test_hostile_text_survives(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    text = "'; DROP TABLE run; --<script>\u2028\r\n\x00\\ud800 \U0001f600" + "x" * 400
    long = text + "y" * 65_000
    write(path, [("measurement", text, simple_measurement(detail=long + "\ud800\udfff"))])
    (line,) = read_bundle(path)
    assert line.run_id == text
    assert isinstance(line.record, Measurement)
    assert line.record.detail == long + "\\ud800\\udfff"


def test_numpy_numbers_are_plain(tmp_path: Path) -> None:
    import numpy as np

    path = tmp_path / "b.jsonl"
    m = simple_measurement(
        metrics={"latency_s": Value(np.float64(0.5), n=np.int64(3))}, telemetry={"a": np.bool_(True)}
    )  # type: ignore[arg-type, dict-item]
    write(path, [("measurement", "r", m)])
    (line,) = read_bundle(path)
    assert isinstance(line.record, Measurement)
    assert line.record.metrics == {"latency_s": Value(0.5, n=3)}
    assert line.record.telemetry == {"a": True}


def test_cut_line_is_put_aside_when_writing_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    write(path, [("measurement", "r", simple_measurement())] * 2)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with BundleWriter(path) as out:
        assert out.recovered is not None
        assert "b.jsonl.cut" in out.recovered
        out.measurement("r", simple_measurement(attempt=2))
    assert [line.record.attempt for line in read_bundle(path)] == [1, 2]  # type: ignore[union-attr]
    assert (tmp_path / "b.jsonl.cut").read_bytes() == whole.splitlines()[1][:-9] + b"\n"
    path.write_bytes(whole[:-1])
    with BundleWriter(path) as out:
        assert out.recovered is None
    assert path.read_bytes() == whole


def test_line_that_does_not_fit_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    code = (
        "import sys\nfrom harness.bundle import BundleWriter\nfrom harness.model import AttnwatchError, RunEnd\n"
        "out = BundleWriter(sys.argv[1])\n"
        "try:\n    while True:\n        out.end(RunEnd('r' * 300, 1.0))\n"
        "except AttnwatchError as error:\n    print(error)\n    sys.exit(error.exit_code)\n"
    )

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], preexec_fn=limit, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "b.jsonl: cannot write the bundle" in done.stdout
    reader = read_bundle(path)
    assert len(list(reader)) == 2
    assert reader.warnings == []


def test_many_writers_mix_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    code = (
        "import sys\nfrom harness.bundle import BundleWriter\nfrom harness.model import RunEnd\n"
        "with BundleWriter(sys.argv[1]) as out:\n"
        "    for i in range(100):\n        out.end(RunEnd(sys.argv[2] * 500, float(i)))\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, str(path), c]) for c in "abcd"]
    assert [child.wait() for child in children] == [0] * 4
    lines = list(read_bundle(path))
    found = {c: [x.record.finished_at for x in lines if x.run_id[0] == c] for c in "abcd"}  # type: ignore[union-attr]
    assert found == {c: [float(i) for i in range(100)] for c in "abcd"}


def test_writing_imports_the_standard_library_only() -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\nimport harness.bundle\n"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    env = {**os.environ, "PYTHONPATH": str(SCHEMA.parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == "['harness']"


def test_published_schema_is_current() -> None:
    assert json.loads(SCHEMA.read_text()) == bundle_schema(), "run `python -m harness.bundle docs/bundle.schema.json`"


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(records)
def test_lines_validate_against_the_schema(item: tuple[Any, str, Record]) -> None:
    kind, run_id, record = item
    line = encode_line(kind, record, **({"run_id": run_id} if kind == "measurement" else {}))
    validator = jsonschema.Draft202012Validator(bundle_schema())
    validator.validate(json.loads(line))
    for field in ("kind", "schema"):
        assert not validator.is_valid({k: v for k, v in json.loads(line).items() if k != field})


RUN = json.loads(encode_line("run", make_run()))
END = json.loads(encode_line("end", RunEnd("r", 5.0)))
CONTROLS = json.loads(encode_line("controls", Controls("r", {"control_gemm_s": Value(1.0)})))
VALUE = {"value": 1.0, "n": 1}
LONG_NAME, LONG_TEXT = "n" * (NAME_CHARS + 1), "t" * (TEXT_CHARS + 1)


def weighing(weight: float) -> dict[str, Any]:
    return {"case": {**GOOD["case"], "workload": {"operation": "a", "params": {}, "weight": weight}}}


def within(record: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """``record`` with the field at a dotted path set."""
    head, _, rest = path.partition(".")
    return {**record, head: within(record.get(head, {}), rest, value) if rest else value}


#: (line, change, what the message says): values that no record can have and that a schema can say so of.
SAYABLE = [
    *((GOOD, weighing(w), r"field case\.workload\.weight: .* is not between 0 and 1e\+18; give 1") for w in (-1, 1e19)),
    *(
        (GOOD, {field: {"latency_s": [1.0, x]}}, rf"field {field}\.latency_s\[1\]: {x!r} is no finite number above 0")
        for field in ("samples", "warmup")
        for x in (-1.0, 0.0)
    ),
    (GOOD, {"started_at": -1.0}, "field started_at: -1.0 is no time between .* seconds since 1970"),
    (GOOD, {"started_at": 253370764800}, "field started_at: 253370764800.0 is no time"),
    (GOOD, {"duration_s": -1.0}, "field duration_s: -1.0 is not between 0 and"),
    (GOOD, {"attempt": 0}, "field attempt: 0 is not between 1 and"),
    (GOOD, {"detail": LONG_TEXT}, "field detail: .* has 65537 characters where 65536 are the limit; shorten it"),
    (GOOD, {"stop_reason": LONG_TEXT}, "field stop_reason: .* has 65537 characters"),
    (GOOD, {"operators": [LONG_TEXT]}, r"field operators\[0\]: .* has 65537 characters"),
    (GOOD, {"run_id": LONG_NAME}, "field run_id: .* has 513 characters where 512 are the limit"),
    (GOOD, {"run_id": ""}, "run id is empty"),
    (GOOD, {"metrics": {"latency_s": {**VALUE, "value": 0.0}}}, r"field metrics\.latency_s\.value: 0\.0 is no finite"),
    (GOOD, {"metrics": {"peak_memory_bytes": {**VALUE, "value": -1}}}, r"peak_memory_bytes\.value: -1\.0 is no"),
    (GOOD, {"metrics": {"x": {**VALUE, "n": 2**31}}}, r"field metrics\.x\.n: 2147483648 is not between"),
    (GOOD, {"metrics": {LONG_NAME: VALUE}}, r"field metrics \(a name\): .* has 513 characters"),
    (GOOD, {"samples": {LONG_NAME: [1.0]}}, r"field samples \(a name\): .* has 513 characters"),
    (GOOD, {"discarded": {"throttled": -1}}, r"field discarded\.throttled: -1 is not between"),
    (GOOD, {"discarded": {LONG_NAME: 1}}, r"field discarded \(a name\): .* has 513"),
    (GOOD, {"telemetry": {"kernel_s": -0.5}}, r"field telemetry\.kernel_s: -0\.5 is below 0"),
    (GOOD, {"telemetry": {"x": LONG_TEXT}}, r"field telemetry\.x: .* has 65537"),
    (GOOD, {"telemetry": {LONG_NAME: 1}}, r"field telemetry \(a name\): .* has 513"),
    *((GOOD, within(GOOD, f"case.{k}", LONG_NAME), rf"field case\.{k}: .* has 513") for k in ("benchmark", "backend")),
    (GOOD, within(GOOD, "case.benchmark_version", LONG_NAME), r"field case\.benchmark_version: .* has 513"),
    (GOOD, within(GOOD, "case.workload.operation", LONG_NAME), r"field case\.workload\.operation: .* has 513"),
    *(
        (GOOD, {"case": case_with({name: value})}, rf"field case\.workload\.params\.{name[:20]}\w*: .*{why}")
        for name, value, why in (
            ("q_len", "abc", "must be a whole number, not 'abc'"),
            ("q_len", -1, "must lie between 0 and"),
            ("batch", 2.5, r"must be a whole number, not 2\.5"),
            ("batch", True, "must be a whole number, not True"),
            ("causal", 3, "must be true or false, not 3"),
            ("causal", 1.0, "must be true or false"),
            ("dtype", 7, "must be one of float64"),
            ("direction", "sideways", "must be one of fwd, bwd"),
            ("layout", 1, "must be text, not 1"),
            ("softcap", "x", "must be a number, not 'x'"),
            ("scale", True, "must be a number, not True"),
            ("own", LONG_TEXT, "has 65537 characters"),
            ("9x", 1, "is not an identifier"),
            (LONG_NAME, 1, "has a name of 513 characters"),
            *((n, 1, "call the parameter something else") for n in ("status", "backend", "latency_s", "latency_s_low")),
        )
    ),
    *((RUN, {"id": x}, message) for x, message in ((LONG_NAME, "field id: .* has 513"), ("", "run id is empty"))),
    (RUN, {"suite": LONG_NAME}, "field suite: .* has 513"),
    (RUN, {"started_at": 1.7e12}, "field started_at: 1700000000000.0 is no time"),
    (RUN, {"planned": -1}, "field planned: -1 is not between"),
    (RUN, {"options": {"a": LONG_TEXT}}, r"field options\.a: .* has 65537"),
    (RUN, {"options": {LONG_NAME: 1}}, r"field options \(a name\): .* has 513"),
    (RUN, within(RUN, "revision.id", LONG_NAME), r"field revision\.id: .* has 513"),
    (RUN, within(RUN, "revision.subject", LONG_TEXT), r"field revision\.subject: .* has 65537"),
    (RUN, within(RUN, "revision.committed_at", -5), r"field revision\.committed_at: -5\.0 is no time"),
    (RUN, within(RUN, "environment.threads", -1), r"field environment\.threads: -1"),
    (RUN, within(RUN, "environment.variables", {"A": LONG_TEXT}), r"field environment\.variables\.A: .* has 65537"),
    (RUN, within(RUN, "environment.packages", {LONG_NAME: "1"}), r"field environment\.packages \(a name\): .* 513"),
    (RUN, within(RUN, "environment.machine.host", LONG_NAME), r"field environment\.machine\.host: .* has 513"),
    (RUN, within(RUN, "environment.machine.details", {"a": LONG_TEXT}), r"machine\.details\.a: .* has 65537"),
    (END, {"finished_at": 1e11}, "field finished_at: 100000000000.0 is no time"),
    (END, {"measured": -1}, "field measured: -1"),
    (END, {"run_id": LONG_NAME}, "field run_id: .* has 513"),
    (CONTROLS, {"values": {"control_gemm_s": {**VALUE, "value": -1.0}}}, r"field values\.control_gemm_s\.value: -1\.0"),
    (CONTROLS, {"values": {LONG_NAME: VALUE}}, r"field values \(a name\): .* has 513"),
]  # fmt: skip

#: The same where a schema cannot say it.
UNSAYABLE = [
    (GOOD, {"metrics": {"x": {**VALUE, "low": 1.5}}}, r"field metrics\.x\.low: 1\.5 is not at or below the value 1\.0"),
    (GOOD, {"metrics": {"x": {**VALUE, "high": 0.5}}}, r"field metrics\.x\.high: 0\.5 is not at or above the value"),
    (GOOD, {"case": case_with({"x": 1}), "metrics": {"x": VALUE}}, "field metrics .*: 'x' is a parameter of this case"),
    (GOOD, {"case": case_with({"heads_q": 2, "heads_kv": 3})}, "params\\.heads_kv: 3 does not divide heads_q"),
    (GOOD, {"case": case_with({"q_lens": "1,2", "batch": 3})}, "params\\.q_lens: lists 2 sequences where batch is 3"),
]  # fmt: skip


@pytest.mark.parametrize("good", [GOOD, RUN, END, CONTROLS])
def test_the_lines_that_are_changed_below_are_good(tmp_path: Path, good: dict[str, Any]) -> None:
    (tmp_path / "b.jsonl").write_text(json.dumps(good) + "\n")
    assert len(list(read_bundle(tmp_path / "b.jsonl"))) == 1
    jsonschema.Draft202012Validator(bundle_schema()).validate(good)


@pytest.mark.parametrize(("good", "change", "message"), SAYABLE + UNSAYABLE)
def test_values_that_cannot_be_are_refused_by_reader_and_schema(
    tmp_path: Path, good: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "b.jsonl"
    bad = {**good, **change}
    path.write_text(json.dumps(good) + "\n" + json.dumps(bad) + "\n")
    with pytest.raises(InputError, match=rf"b\.jsonl:2: .*{message}") as caught:
        list(read_bundle(path))
    assert len(str(caught.value)) < 1000
    sayable = any(change is x for _, x, _ in SAYABLE)
    assert jsonschema.Draft202012Validator(bundle_schema()).is_valid(bad) is not sayable


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_numbers_that_are_none_are_refused(tmp_path: Path, number: str) -> None:
    path = tmp_path / "b.jsonl"
    for field in ('"started_at": ', '"samples": {"latency_s": [1.0, ', '"telemetry": {"x": ', '"duration_s": '):
        closing = {"[": "]}", "{": "}"}.get(next((c for c in reversed(field) if c in "[{"), ""), "")
        rest = {k: v for k, v in GOOD.items() if not field.startswith(f'"{k}"')}
        path.write_text("{" + field + number + closing + ", " + json.dumps(rest)[1:] + "\n")
        with pytest.raises(InputError, match=r"b\.jsonl:1: .*(out of range|not valid JSON)"):
            list(read_bundle(path))


def test_old_lines_without_the_optional_fields_are_read(tmp_path: Path) -> None:
    case = {"benchmark": "b", "workload": {"operation": "attention", "params": {"q_len": 1}}, "backend": "x"}
    machine = {"device_kind": "cpu", "device_model": "X"}
    old = [
        {"kind": "run", "id": "r", "suite": "s", "revision": {"id": "c"}, "environment": {"machine": machine}},
        {"kind": "measurement", "run_id": "r", "case": case, "status": "ok"},
        {"kind": "end", "run_id": "r", "finished_at": 2.0},
    ]
    path = tmp_path / "b.jsonl"
    for line in old:
        line |= {"schema": 1} if line["kind"] == "end" else {"schema": 1, "started_at": 1.0}
        jsonschema.Draft202012Validator(bundle_schema()).validate(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in old))
    assert [line.kind for line in read_bundle(path)] == ["run", "measurement", "end"]


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


@pytest.mark.parametrize(
    "content",
    [
        b"SQLite format 3\0" + b"x" * 5000,
        b"a,b\n1,2\n3",
        b'{"some": "json"}\nand a tail',
        b'{"kind":"run","schema":99,"id":"r"}\n{"cut',
        b"[" * 200_000 + b"\n",
    ],
)
def test_files_of_others_are_left_as_they_are(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "theirs"
    path.write_bytes(content)
    with pytest.raises(InputError, match="theirs:1"):
        BundleWriter(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]
