"""One result file of asv, format 1 or 2, as the same columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.model import InputError, Revision, Scalar

from .files import Fields, finite, parse_json, show

_OF_MACHINE = ("arch", "cpu", "num_cpu", "os", "ram")
#: What asv itself puts among the parameters of a run beside requirements and variables.
_NOT_AXES = frozenset({*_OF_MACHINE, "machine"})
_STATS = ("ci_99_a", "ci_99_b", "q_25", "q_75", "number", "repeat")
_KNOWN = frozenset({"result", "params", "version", "started_at", "duration", "samples", "profile"}) | {
    f"stats_{name}" for name in _STATS
}


@dataclass(frozen=True)
class Row:
    """Results of one benchmark: ``values`` has one for each combination of ``params``, or is None where all failed.

    ``stats`` holds lists as long as ``values`` (``ci_99_a``, ``number`` ...); ``started_at`` is in seconds.
    """

    values: list[Any] | None
    params: list[list[str]]
    version: str | None
    started_at: float | None
    duration: float | None
    stats: Mapping[str, list[Any]]
    samples: list[Any] | None


@dataclass(frozen=True)
class Result:
    """A result file: what was measured where, and a :class:`Row` for each benchmark. Times in seconds."""

    place: str
    commit: str
    committed_at: float
    machine: str
    env_name: str
    python: str
    requirements: dict[str, str]
    axes: dict[str, str]
    machine_details: dict[str, Scalar]
    rows: dict[str, Row]
    profiles: int
    revision: Revision


def load(data: bytes, place: str) -> Result | None:
    """The content of a file; None for JSON that is no result of asv. InputError names file and field."""
    top = parse_json(data, place)
    if not isinstance(top, dict) or not {"commit_hash", "results"} <= top.keys():
        return None
    fields = Fields(top, place)
    version = top.get("version", 1 if "result_columns" not in top else 2)
    if version not in (1, 2):
        raise fields.fail("version", f"{show(version)} is none that is known (1, 2); save the results with asv 0.6")
    commit = fields.text("commit_hash")
    if not commit:
        raise fields.fail("commit_hash", "is empty")
    date = fields.number("date")
    if date is None or not 0 <= date <= 1e13:
        raise fields.fail("date", f"must be milliseconds since 1970, not {show(top.get('date'))}")
    params = fields.object("params").value
    requirements = {str(k): _text(v) for k, v in fields.object("requirements").value.items()}
    axes = {k: _text(v) for k, v in params.items() if k not in _NOT_AXES and v not in (None, "")}
    python = _text(top.get("python") or params.get("python") or "")
    if python:
        axes.setdefault("python", python)
    for name, version in requirements.items():
        if version:
            axes.setdefault(name, version)
    machine = _text(params.get("machine") or "")
    revision = Revision(commit, commit, False, date / 1000)
    if isinstance(ours := top.get("attnwatch"), dict):  # our own export: what asv has no place for
        machine = _text(ours.get("machine") or machine)
        revision = Revision(
            _text(ours.get("revision") or commit), commit if ours.get("commit") is not False else None,
            ours.get("dirty") is True, date / 1000, _text(ours.get("subject") or ""),
        )  # fmt: skip
        if isinstance(told := ours.get("axes"), list):
            axes = {k: v for k, v in axes.items() if k in told}
    rows = _rows_2(fields) if "result_columns" in top else _rows_1(fields)
    profiles = top.get("profiles")
    return Result(
        place, commit, date / 1000, machine, _text(top.get("env_name") or ""), python,
        requirements, axes, {k: v for k in _OF_MACHINE if isinstance(v := params.get(k), str | int | float)},
        rows, (len(profiles) if isinstance(profiles, dict) else 0) + _profiles(fields),
        revision,
    )  # fmt: skip


def _rows_2(fields: Fields) -> dict[str, Row]:
    columns = fields.sequence("result_columns")
    for i, name in enumerate(columns):
        if not isinstance(name, str):
            raise fields.fail(f"result_columns[{i}]", f"must be text, not {show(name)}")
    if "result" not in columns:
        raise fields.fail("result_columns", "lacks 'result'")
    results = fields.object("results")
    out = {}
    for name, cells in results.value.items():
        if not isinstance(cells, list):
            raise results.fail(name, f"must be a list, not {show(cells)}")
        row = dict(zip(columns, cells, strict=False))
        place = results.path(name)
        stats = {
            key: held for key in _STATS if (held := _list(fields, f"{place}.stats_{key}", row.get(f"stats_{key}")))
        }
        out[name] = Row(
            _list(fields, f"{place}.result", row.get("result")), _params(fields, place, row.get("params")),
            _version(row.get("version")), _milliseconds(row.get("started_at")), finite(row.get("duration")), stats,
            _list(fields, f"{place}.samples", row.get("samples")),
        )  # fmt: skip
    return out


def _rows_1(fields: Fields) -> dict[str, Row]:
    results = fields.object("results")
    versions, started, durations = (
        fields.object(name).value for name in ("benchmark_version", "started_at", "duration")
    )
    out = {}
    for name, held in results.value.items():
        # The oldest files hold bare numbers, later ones objects.
        row = held if isinstance(held, dict) else {"result": held}
        place = results.path(name)
        values, stats, samples = row.get("result"), row.get("stats"), row.get("samples")
        params = _params(fields, place, row.get("params"))
        if not isinstance(values, list) and (values is not None or not params):
            values = [values]
        out[name] = Row(
            values, params, _version(versions.get(name)), _milliseconds(started.get(name)),
            finite(durations.get(name)), _stats_1(stats if isinstance(stats, list) else [stats]),
            samples if isinstance(samples, list) else None,
        )  # fmt: skip
    return out


def _stats_1(stats: list[Any]) -> dict[str, list[Any]]:
    if not any(isinstance(s, dict) for s in stats):
        return {}
    held = [s if isinstance(s, dict) else {} for s in stats]
    ends = [c if isinstance(c := s.get("ci_99"), list) and len(c) == 2 else (None, None) for s in held]
    out = {key: [s.get(key) for s in held] for key in ("q_25", "q_75", "number", "repeat")}
    return out | {"ci_99_a": [a for a, _ in ends], "ci_99_b": [b for _, b in ends]}


def _params(fields: Fields, place: str, params: Any) -> list[list[str]]:
    if params is None:
        return []
    if not isinstance(params, list):
        raise InputError(f"{fields.place}: field {place}.params: must be a list of lists, not {show(params)}")
    if params and not any(isinstance(p, list) for p in params):
        params = [params]  # asv itself took a single list for one parameter
    out = []
    for i, values in enumerate(params):
        if not isinstance(values, list):
            raise InputError(f"{fields.place}: field {place}.params[{i}]: must be a list, not {show(values)}")
        out.append([v if isinstance(v, str) else _text(v) for v in values])
    return out


def _list(fields: Fields, place: str, value: Any) -> list[Any] | None:
    if value is not None and not isinstance(value, list):
        if isinstance(value, int | float | str):
            return [value]
        raise InputError(f"{fields.place}: field {place}: must be a list, not {show(value)}")
    return value


def _profiles(fields: Fields) -> int:
    columns = fields.value.get("result_columns")
    if not isinstance(columns, list) or "profile" not in columns:
        return 0
    at = columns.index("profile")
    rows = fields.object("results").value.values()
    return sum(isinstance(r, list) and len(r) > at and r[at] is not None for r in rows)


def _version(value: Any) -> str | None:
    return _text(value) if value not in (None, "") else None


def _milliseconds(value: Any) -> float | None:
    number = finite(value)
    return number / 1000 if number is not None and 0 <= number <= 1e13 else None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return repr(value)[:500]
    except (ValueError, RecursionError):
        return "?"
