"""A log of calls becomes weighted workloads, so that a team sweeps what it serves.

JSON lines (one object of shapes a line) or CSV with the same names; ``count`` says how often. Unknown columns that
are no parameters are refused by name rather than dropped, since a dropped column would merge different calls.
"""

from __future__ import annotations

import json

from .model import InputError, Scalar, Workload, canonical_json
from .model.checks import wrong_param
from .model.params import PARAMETERS, SEQ_LEN
from .model.reading import read_text
from .model.suite import grid
from .table import read_table

_KNOWN: dict[str, type] = {**PARAMETERS, SEQ_LEN: int, "operation": str, "count": float}
_WORDS = {int: "a whole number", str: "text", bool: "true or false", float: "a number"}


def import_calls(path: str) -> list[Workload]:
    """Distinct calls of a log with their counts as weights, most frequent first. InputError names file and line."""
    rows = _json_rows(path) if path.endswith((".jsonl", ".ndjson", ".json")) else _csv_rows(path)
    total: dict[str, Workload] = {}
    for where, row in rows:
        workload = _workload(where, row)
        key = canonical_json([workload.operation, workload.params])
        earlier = total.get(key)
        weight = workload.weight + (earlier.weight if earlier else 0.0)
        total[key] = Workload(workload.operation, workload.params, weight)
    if not total:
        raise InputError(f"{path}: holds no calls")
    return sorted(total.values(), key=lambda w: (-w.weight, w.operation, w.label))


def _csv_rows(path: str) -> list[tuple[str, dict[str, Scalar]]]:
    table = read_table(path, text=("q_lens", "kv_lens"))
    return [(f"{table.name}:{line}", row) for line, row in zip(table.lines, table.rows(), strict=True)]


def _json_rows(path: str) -> list[tuple[str, dict[str, Scalar]]]:
    lines = read_text(path).split("\n")
    out = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as err:
            raise InputError(f"{where}: not a JSON object: {err}") from None
        if not isinstance(row, dict):
            raise InputError(f"{where}: not a JSON object but {type(row).__name__}")
        for key, value in row.items():
            if value is not None and not isinstance(value, bool | int | float | str):
                raise InputError(f"{where}: field {key!r}: must be a scalar, not {value!r}")
        out.append((where, row))
    return out


def _workload(where: str, row: dict[str, Scalar]) -> Workload:
    unknown = sorted(row.keys() - _KNOWN.keys())
    if unknown:
        raise InputError(f"{where}: unknown field {unknown[0]!r}; known are {', '.join(sorted(_KNOWN))}")
    given = {k: v for k, v in row.items() if v is not None}
    for name, value in given.items():
        if not _is(value, _KNOWN[name]):
            raise InputError(f"{where}: field {name!r}: must be {_WORDS[_KNOWN[name]]}, not {value!r}")
    count = given.pop("count", 1)
    operation = given.pop("operation", "attention")
    assert isinstance(count, int | float) and isinstance(operation, str)
    if not 0 < count < 1e18:
        raise InputError(f"{where}: field 'count': must be a number above 0, not {count!r}")
    try:
        workload = grid(operation, weight=float(count), **given)[0]
    except ValueError as err:
        raise InputError(f"{where}: {err}") from None
    wrong = wrong_param(workload.params)
    if wrong is not None:
        raise InputError(f"{where}: field {wrong[0]!r}: {wrong[1]}")
    return workload


def _is(value: Scalar, kind: type) -> bool:
    """Whether a cell or a field is of a parameter's kind; lengths and counts are not below zero."""
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and value >= 0
    return isinstance(value, int | float if kind is float else kind)
