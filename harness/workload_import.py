"""A log of calls becomes weighted workloads, so that a team sweeps what it serves.

JSON lines (one object of shapes a line) or CSV with the same names; ``count`` says how often. Unknown columns that
are no parameters are refused by name rather than dropped, since a dropped column would merge different calls.
"""

from __future__ import annotations

import json
from pathlib import Path

from .model import InputError, Scalar, Workload, canonical_json
from .model.suite import grid
from .table import read_table

_INTEGERS = {
    "batch",
    "heads_q",
    "heads_kv",
    "q_len",
    "kv_len",
    "seq_len",
    "head_dim",
    "page_size",
    "segment_len",
    "window",
}
_TEXTS = {"dtype", "direction", "layout", "mask", "causal_alignment", "q_lens", "kv_lens"}
_KNOWN = _INTEGERS | _TEXTS | {"causal", "softcap", "scale", "operation", "count"}


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
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as err:
        raise InputError(f"{path}: cannot be read: {err}") from None
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
    unknown = sorted(set(row) - _KNOWN)
    if unknown:
        raise InputError(f"{where}: unknown field {unknown[0]!r}; known are {', '.join(sorted(_KNOWN))}")
    given = {k: v for k, v in row.items() if v is not None}
    count = given.pop("count", 1)
    operation = given.pop("operation", "attention")
    if isinstance(count, bool) or not isinstance(count, int | float) or not count > 0:
        raise InputError(f"{where}: field 'count': must be a number above 0, not {count!r}")
    if not isinstance(operation, str):
        raise InputError(f"{where}: field 'operation': must be text, not {operation!r}")
    for name, value in given.items():
        if name in _INTEGERS and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise InputError(f"{where}: field {name!r}: must be a whole number, not {value!r}")
        if name == "causal" and not isinstance(value, bool):
            raise InputError(f"{where}: field 'causal': must be true or false, not {value!r}")
        if name in _TEXTS and not isinstance(value, str):
            raise InputError(f"{where}: field {name!r}: must be text, not {value!r}")
    try:
        return grid(operation, weight=float(count), **given)[0]
    except ValueError as err:
        raise InputError(f"{where}: {err}") from None
