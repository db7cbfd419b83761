"""Workload files: what a team serves, as a suite. ``attnwatch workload import`` writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .checks import wrong_param
from .reading import read_text
from .records import Workload
from .terms import InputError

FILE_SUFFIX = ".suite.json"
_FORMAT = "attnwatch workloads"
_LIMIT_BYTES = 64 << 20
_HEAVIEST = 1e18


def is_suite_file(name: str) -> bool:
    """Whether ``--suite`` names a file rather than a suite."""
    return name.endswith(".json") or "/" in name


def suite_name(text: str) -> str:
    """Name of the suite that ``--suite`` gives: for a workload file its name without folder and suffixes."""
    return Path(text).name.removesuffix(".json").removesuffix(".suite") if is_suite_file(text) else text


def write_suite(path: Path, workloads: Sequence[Workload], name: str) -> None:
    """Write a workload file."""
    rows = [{"operation": w.operation, "params": w.params, "weight": w.weight} for w in workloads]
    text = json.dumps({"format": _FORMAT, "version": 1, "name": name, "workloads": rows}, indent=1)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as err:
        raise InputError(f"{path}: cannot be written: {err.strerror}; name a file with --out") from None


def read_suite(path: Path) -> tuple[str, list[Workload]]:
    """Name and workloads of a workload file. InputError names the file and the entry at fault."""
    if not path.exists():
        raise InputError(f"{path}: no such workload file; `attnwatch workload import` writes one")
    try:
        data = json.loads(read_text(str(path), _LIMIT_BYTES))
    except (ValueError, RecursionError) as err:
        raise InputError(f"{path}: not a workload file: {err}") from None
    rows = data.get("workloads") if isinstance(data, dict) else None
    if not isinstance(rows, list) or data.get("format") != _FORMAT or data.get("version") != 1:
        raise InputError(f"{path}: not a workload file of version 1 (format {_FORMAT!r})")
    if not rows:
        raise InputError(f"{path}: holds no workloads")
    name = str(data.get("name") or suite_name(str(path.absolute())))
    return name, [_workload(row, f"{path}: workloads[{i}]") for i, row in enumerate(rows)]


def _workload(row: object, where: str) -> Workload:
    if not isinstance(row, dict):
        raise InputError(f"{where}: must be an object with operation, params and weight")
    operation, params, weight = row.get("operation"), row.get("params"), row.get("weight", 1.0)
    if not isinstance(operation, str):
        raise InputError(f"{where}.operation: must be text, not {operation!r}")
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 < weight < _HEAVIEST:
        raise InputError(f"{where}.weight: must be a number above 0, not {weight!r}")
    if not isinstance(params, dict):
        raise InputError(f"{where}.params: must be an object, not {params!r}")
    for key, value in params.items():
        if not key.isidentifier() or not (value is None or isinstance(value, bool | int | float | str)):
            raise InputError(f"{where}.params.{key}: names must be identifiers and values scalars, not {value!r}")
    wrong = wrong_param(params)
    if wrong is not None:
        raise InputError(f"{where}.params.{wrong[0]}: {wrong[1]}")
    return Workload(operation, params, float(weight))
