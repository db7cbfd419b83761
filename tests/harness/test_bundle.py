"""The bundle: round trip, cut lines, bad lines, many writers."""

from __future__ import annotations

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
    Record,
    bundle_schema,
    encode_line,
    read_bundle,
)
from harness.model import (
    InputError,
    Measurement,
    Run,
    RunEnd,
    Value,
)

from .bundles import (
    GOOD,
    SCHEMA,
    case_with,
    exactly,
    records,
    simple_measurement,
    write,
)


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
