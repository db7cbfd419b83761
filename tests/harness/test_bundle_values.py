"""Values that cannot be: refused by the reader and, where it can say so, by the schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.bundle import (
    Controls,
    bundle_schema,
    encode_line,
    read_bundle,
)
from harness.model import (
    InputError,
    RunEnd,
    Value,
)
from tests.db.factory import make_run

from .bundles import (
    GOOD,
    LONG_NAME,
    LONG_TEXT,
    case_with,
)

RUN = json.loads(encode_line("run", make_run()))
END = json.loads(encode_line("end", RunEnd("r", 5.0)))
CONTROLS = json.loads(encode_line("controls", Controls("r", {"control_gemm_s": Value(1.0)})))
VALUE = {"value": 1.0, "n": 1}


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
