"""Rows of an asv result file as measurements: names, parameters and units come from ``benchmarks.json``."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.model import METRICS, Case, Measurement, Scalar, Status, Value
from harness.model.bounds import MAX_DURATION, POSITIVE_SUFFIX
from harness.model.canonical import parse_label
from harness.model.metrics import declare

from .asv_file import Result, Row
from .files import finite
from .fitting import case_of, fit_columns, impossible
from .literals import counted, identifiers, scalar_of
from .units import Measure, measure_of

FAILED = "asv recorded no value: the benchmark failed (null)"
NOT_RUN = "asv recorded no value: skipped or not selected (NaN)"
INFINITE = "the value is infinite"
NO_NUMBER = "the result is not a number"
NO_PARAMS = "a value beyond the combinations of the parameters"

#: Half-width of a 95 % interval in those of a 99 % one, under the normal distribution.
CI_95 = 1.959963984540054 / 2.5758293035489004
#: How our export writes a parameter that a combination does not have, and all parameters in one.
ABSENT, LABEL = "<absent>", "attnwatch_label"
#: Marks parameters that are the backend and the operation of ours; no identifier of a parameter ends so.
_MARK = "_\u02bb"
BACKEND, OPERATION = f"backend{_MARK}", f"operation{_MARK}"
_NUMBERS = (float, int)
#: Cases kept, so that the same ones of the next file cost nothing.
_KEPT = 100_000

_KINDS = ((re.compile(r"(Timeraw[A-Z_]|timeraw_|Time[A-Z_]|time_)"), "time"),
          (re.compile(r"(PeakMem[A-Z_]|peakmem_)"), "peakmemory"),
          (re.compile(r"(Mem[A-Z_]|mem_)"), "memory"))  # fmt: skip


@dataclass(frozen=True)
class _Combinations:
    """All combinations of one benchmark in one environment, in asv's order, and what is measured of them."""

    cases: list[Case]
    measure: Measure
    total: int


class Benchmarks:
    """What ``benchmarks.json`` says, and the cases made so far."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._told = {k: v for k, v in told.items() if isinstance(v, dict)}
        self._made: dict[object, _Combinations] = {}
        self._kept = 0

    def is_ours(self, name: str) -> bool:
        """Whether our export wrote it: several names may then be metrics of one case."""
        return "attnwatch" in self._told.get(name, {})

    def version(self, name: str) -> str:
        """The version of today, which asv takes results without one to belong to; ``1`` where there is none."""
        version = self._told.get(name, {}).get("version")
        return version if isinstance(version, str) and version else "1"

    def axes(self, result: Result) -> dict[str, str]:
        """Name of a parameter of our cases -> name of the parameter of the environment."""
        return dict(zip(identifiers(result.axes), result.axes, strict=True))

    def combinations(self, name: str, row: Row, axes: Mapping[str, str]) -> _Combinations:
        """Cases for the values of ``row``, no more than it has."""
        wanted = len(row.values or ())
        key = (name, row.version, wanted, json.dumps(row.params), tuple(axes.items()))
        held = self._made.get(key)
        if held is None:
            held = self._combine(name, row, axes, wanted)
            if self._kept > _KEPT:
                self._made.clear()
                self._kept = 0
            self._made[key] = held
            self._kept += len(held.cases)
        return held

    def _combine(self, name: str, row: Row, axes: Mapping[str, str], wanted: int) -> _Combinations:
        names = self._names(name, row.params, axes)
        own, around = names[: len(row.params)], names[len(row.params) :]
        benchmark, measure = self._measure(name)
        version = row.version or self.version(name)
        values = [[scalar_of(v) for v in counted(column)] for column in row.params]
        names = fit_columns([*own, *around], [*values, *([v] for v in axes.values())])
        names = [f"{n}_" if n == measure.metric else n for n in names]
        own, around = names[: len(own)], names[len(own) :]
        fixed: dict[str, Scalar] = dict(zip(around, axes.values(), strict=True))
        cases = []
        for combination in itertools.islice(itertools.product(*values), wanted):
            params: dict[str, Scalar] = dict(zip(own, combination, strict=True))
            if ABSENT in combination or LABEL in own:
                params = _unpacked(params)
            params |= fixed
            backend, operation = params.pop(BACKEND, "asv"), params.pop(OPERATION, "asv")
            cases.append(case_of(benchmark, str(operation), params, str(backend), version))
        return _Combinations(cases, measure, math.prod(len(v) for v in values))

    def _names(self, name: str, params: Sequence[list[str]], axes: Mapping[str, str]) -> list[str]:
        """Identifiers for the parameters and then for those of the environment; two of ours are marked."""
        told = self._told.get(name, {}).get("param_names")
        if not isinstance(told, list) or len(told) != len(params) or not all(isinstance(x, str) for x in told):
            told = [f"param{i + 1}" for i in range(len(params))]
        held = identifiers([*axes, *told])
        out = [*held[len(axes) :], *held[: len(axes)]]
        for ours in ("backend", "operation"):
            if told.count(ours) == 1 and all(isinstance(scalar_of(v), str) for v in params[told.index(ours)]):
                out[told.index(ours)] = f"{ours}{_MARK}"
        return out

    def _measure(self, name: str) -> tuple[str, Measure]:
        """(benchmark, metric): from the type and unit where known, else from the name as asv chooses types."""
        told = self._told.get(name, {})
        if isinstance(ours := told.get("attnwatch"), dict):  # our own export says what it was
            benchmark, metric, unit, better = (ours.get(k) for k in ("benchmark", "metric", "unit", "better"))
            if isinstance(benchmark, str) and isinstance(metric, str) and isinstance(unit, str):
                if metric not in METRICS and better in ("lower", "higher", "none"):
                    declare(metric, unit, better)
                return benchmark, Measure(metric)
        last = name.rpartition(".")[2]
        kind, unit = told.get("type"), told.get("unit")
        if not isinstance(kind, str):
            kind = next((k for pattern, k in _KINDS if pattern.match(last)), "track")
        if kind == "time":
            return name, Measure("latency_s")
        if kind == "peakmemory":
            return name, Measure("peak_memory_bytes")
        if kind == "memory":
            return name, measure_of("bytes", "lower")
        # asv's own rule: what grows has regressed.
        return name, measure_of(unit if isinstance(unit, str) else "unit", None if _is_rate(unit) else "lower")


def _unpacked(params: dict[str, Scalar]) -> dict[str, Scalar]:
    out = {k: v for k, v in params.items() if v != ABSENT and k != LABEL}
    try:
        held = parse_label(str(params[LABEL])) if LABEL in params else {}
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {**out, LABEL: params[LABEL]}
    ours = {k: f"{k}{_MARK}" for k in ("backend", "operation") if isinstance(held.get(k), str)}
    return out | {ours.get(k, k): v for k, v in held.items()}


def _is_rate(unit: object) -> bool:
    return isinstance(unit, str) and measure_of(unit).metric.endswith("_per_s")


def rows_of(result: Result, about: Benchmarks, dropped: Counter[str]) -> list[Measurement]:
    """Measurements of a file; rows that give none are counted in ``dropped``."""
    out: list[Measurement] = []
    merged: dict[str, Measurement] = {}
    for name, row in result.rows.items():
        made = about.combinations(name, row, result.axes)
        if row.values is None:
            dropped[FAILED] += made.total
            continue
        if len(row.values) > made.total:
            dropped[NO_PARAMS] += len(row.values) - made.total
        at = row.started_at if row.started_at is not None else result.committed_at
        found = _measurements(row, made, at, dropped)
        if about.is_ours(name):
            found = [m for m in found if not _merge(merged, m)]
        out += found
    return out


def _merge(merged: dict[str, Measurement], m: Measurement) -> bool:
    """Add the metric of ``m`` to the measurement of its case that is there already."""
    held = merged.setdefault(m.case.key, m)
    if held is not m:
        held.metrics.update(m.metrics)
        held.samples.update(m.samples)
    return held is not m


def _measurements(row: Row, made: _Combinations, at: float, dropped: Counter[str]) -> list[Measurement]:
    assert row.values is not None
    metric, factor = made.measure.metric, made.measure.factor
    count = len(row.values)
    lows, highs, repeats, numbers, q25, q75 = (
        _padded(row.stats.get(k), count) for k in ("ci_99_a", "ci_99_b", "repeat", "number", "q_25", "q_75")
    )
    samples = _padded(row.samples, count)
    duration = row.duration if row.duration is not None and 0 <= row.duration <= MAX_DURATION and count == 1 else 0.0
    out = []
    for i, case in enumerate(made.cases):
        raw = row.values[i]
        if type(raw) is not float or raw - raw != 0:
            value = finite(raw)
            if value is None:
                dropped[_why(raw)] += 1
                continue
        else:
            value = raw
        value *= factor
        if value - value != 0:
            dropped[INFINITE] += 1
            continue
        if value <= 0 and (why := impossible(metric, value)) is not None:
            dropped[why] += 1
            continue
        low = high = None
        if type(lows[i]) in _NUMBERS and type(highs[i]) in _NUMBERS:
            low, high = narrow(value, lows[i] * factor, highs[i] * factor)
        kept = _samples(samples[i], metric, factor)
        repeat = repeats[i]
        n = repeat if type(repeat) is int and 0 < repeat < 2**31 else len(kept or ()) or 1
        telemetry: dict[str, Scalar] = {}
        for key, held in (("number", numbers[i]), ("q_25", q25[i]), ("q_75", q75[i])):
            if type(held) is float and held - held == 0:
                telemetry[key] = held * factor
            elif type(held) is int and -(2**63) <= held < 2**63:
                telemetry[key] = held
        out.append(
            Measurement(
                case, Status.OK, at, duration, metrics={metric: Value(value, low, high, n)},
                samples={metric: kept} if kept else {}, telemetry=telemetry,
            )
        )  # fmt: skip
    return out


def narrow(value: float, low: float, high: float) -> tuple[float | None, float | None]:
    """The 95 % interval for a 99 % one around ``value``; None where an end is open or on the wrong side."""
    if low - low != 0 or high - high != 0 or not low <= value <= high:
        return None, None
    return value - (value - low) * CI_95, value + (high - value) * CI_95


def widen(value: float, low: float, high: float) -> tuple[float, float]:
    """Inverse of :func:`narrow`, up to rounding."""
    return value - (value - low) / CI_95, value + (high - value) / CI_95


def _samples(given: object, metric: str, factor: float) -> list[float] | None:
    if not isinstance(given, list):
        return None
    numbers = [s * factor for x in given if (s := finite(x)) is not None]
    return [s for s in numbers if s > 0] if metric.endswith(POSITIVE_SUFFIX) else numbers


def _padded(values: list[Any] | None, count: int) -> list[Any]:
    values = values or []
    return values + [None] * (count - len(values)) if len(values) < count else values


def _why(raw: object) -> str:
    if raw is None:
        return FAILED
    if isinstance(raw, float):
        return NOT_RUN if math.isnan(raw) else INFINITE
    return NO_NUMBER
