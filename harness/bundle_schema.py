"""The published JSON Schema of a bundle's lines: the types of the records, and the bounds that a schema can state.

What it cannot state (finite sums, intervals in order, lists that agree with lengths, an end after its start) the
reader checks all the same; see :mod:`harness.model.bounds`.
"""

from __future__ import annotations

from typing import Any

from harness.model import BUNDLE_SCHEMA, Measurement, Run, RunEnd
from harness.model import bounds as b
from harness.model.checks import CHOICES, LARGEST, LENGTHS
from harness.model.metrics import METRICS
from harness.model.params import NAME_CHARS, PARAMETERS, RESERVED, TEXT_CHARS

_NAME = {"maxLength": NAME_CHARS}
_TEXT = {"maxLength": TEXT_CHARS}
_TIME = {"minimum": 0, "maximum": b.MAX_TIME}
_COUNT = {"minimum": 0, "maximum": b.MAX_COUNT}
_NAMES = {"propertyNames": _NAME}
#: ASCII characters that no identifier holds; the reader is as strict about the others.
_IDENTIFIER = r"^[^\x00-@\[-^`{-\x7f][^\x00-/:-@\[-^`{-\x7f]*$"
_JSON_TYPES = {int: ["integer", "null"], bool: ["boolean", "null"], str: ["string", "null"], float: ["number", "null"]}


def line_schema(controls: type) -> dict[str, Any]:
    """JSON Schema (2020-12) of one line; ``controls`` is the record of the control kernels."""
    import msgspec

    records: dict[str, type] = {"run": Run, "measurement": Measurement, "controls": controls, "end": RunEnd}
    refs, components = msgspec.json.schema_components(records.values(), ref_template="#/$defs/{name}")
    branches = []
    for kind, ref in zip(records, refs, strict=True):
        head: dict[str, Any] = {"kind": {"const": kind}, "schema": {"const": BUNDLE_SCHEMA}}
        required = ["kind", "schema"]
        if kind == "measurement":
            head["run_id"] = {"type": "string", "minLength": 1, **_NAME}
            required.append("run_id")
        branches.append({"allOf": [{"type": "object", "properties": head, "required": required}, ref]})
    defs = dict(sorted(components.items()))
    for name, fields in _bounds().items():
        # Beside what the types say, not in its place.
        defs[name] = {**defs[name], "allOf": [{"properties": fields}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "attnwatch bundle, one line",
        "oneOf": branches,
        "$defs": defs,
    }


def _bounds() -> dict[str, dict[str, Any]]:
    names = dict.fromkeys(("benchmark", "backend", "benchmark_version"), _NAME)
    kinds = ("device_kind", "device_model", "clock_policy", "host", "board_uuid")
    texts = {**_NAMES, "additionalProperties": _TEXT}
    samples = {**_NAMES, "patternProperties": {f"{b.POSITIVE_SUFFIX}$": {"items": {"exclusiveMinimum": 0}}}}
    return {
        "Case": names,
        "Workload": {
            "operation": _NAME,
            "weight": {"minimum": 0, "maximum": b.MAX_WEIGHT},
            "params": {
                "propertyNames": {**_NAME, "pattern": _IDENTIFIER, "not": {"enum": sorted(RESERVED)}},
                "properties": {name: _parameter(name) for name in PARAMETERS},
                "additionalProperties": _TEXT,
            },
        },
        "Machine": {**dict.fromkeys(kinds, _NAME), "details": texts},
        "Environment": {
            **dict.fromkeys(("python", "driver", "kernels_hash", "ruler_version"), _NAME),
            "kernels_path": _TEXT,
            "packages": texts,
            "variables": texts,
            "threads": _COUNT,
        },
        "Revision": {
            **dict.fromkeys(("id", "commit", "kernels_hash"), _NAME),
            "subject": _TEXT,
            "committed_at": _TIME,
        },
        "Run": {
            "id": {"minLength": 1, **_NAME},
            **dict.fromkeys(("suite", "ruler_version"), _NAME),
            "started_at": _TIME,
            "planned": _COUNT,
            "options": texts,
        },
        "Value": {"n": _COUNT},
        "Measurement": {
            "started_at": _TIME,
            "duration_s": {"minimum": 0, "maximum": b.MAX_DURATION},
            "detail": _TEXT,
            "stop_reason": _TEXT,
            "attempt": {"minimum": 1, "maximum": b.MAX_COUNT},
            "metrics": _metrics(),
            "samples": samples,
            "warmup": samples,
            "discarded": {**_NAMES, "additionalProperties": _COUNT},
            "operators": {"items": _TEXT},
            "telemetry": {
                **texts,
                "patternProperties": {f"({'|'.join(b.COUNTED_SUFFIXES)})$": {"minimum": 0, **_TEXT}},
            },
        },
        "Controls": {"run_id": {"minLength": 1, **_NAME}, "values": _metrics()},
        "RunEnd": {"run_id": {"minLength": 1, **_NAME}, "finished_at": _TIME, "measured": _COUNT},
    }


def _metrics() -> dict[str, Any]:
    least = {m: {"exclusiveMinimum" if m in b.POSITIVE else "minimum": 0} for m in METRICS}
    return {**_NAMES, "properties": {m: {"properties": {"value": rule}} for m, rule in least.items()}}


def _parameter(name: str) -> dict[str, Any]:
    kind = PARAMETERS[name]
    if name in CHOICES:
        return {"enum": [*CHOICES[name], None]}
    rule: dict[str, Any] = {"type": _JSON_TYPES[kind]}
    if kind is int:
        rule |= {"minimum": 0 if name in LENGTHS else 1, "maximum": LARGEST}
    elif kind is str:
        rule |= _TEXT
    return rule
