"""What the values of records may be beyond their types: lengths, ranges, order. Holds for every bundle.

:func:`wrong_in` names what is wrong; :mod:`harness.bundle_schema` says the same in the published JSON Schema. Each
measurement of an ingest passes here, so the common case is a few comparisons a field.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .canonical import Scalar
from .checks import shown, wrong_param
from .metrics import METRICS
from .params import NAME_CHARS, TEXT_CHARS
from .records import Case, Measurement, Run, RunEnd, Value

#: Whole numbers that every database keeps in an INTEGER column.
MAX_COUNT = 2**31 - 1
#: Times are seconds since 1970; beyond this (the year 2286) they are milliseconds or nonsense.
MAX_TIME = 1e10
#: Longest duration, seconds: thirty years.
MAX_DURATION = 1e9
MAX_WEIGHT = 1e18

#: Metrics whose value must be above 0; every other registered one must not be below it.
POSITIVE = frozenset({"latency_s", "latency_hot_s"})
#: Samples whose metric is called so are seconds or rates, which nothing real has at or below 0.
POSITIVE_SUFFIX = "_s"
#: Telemetry called so counts up from 0.
COUNTED_SUFFIXES = ("_s", "_hz", "_bytes", "_w")


_INF = math.inf


class Wrong(NamedTuple):
    """One value that cannot be: its field, the value, and what to do about it."""

    field: str
    value: object
    why: str

    def __str__(self) -> str:
        return f"field {self.field[:120]}: {shown(self.value)} {self.why}"


class WrongParam(Wrong):
    """A parameter that cannot be; ``why`` holds its value."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"field {self.field[:120]}: {self.why}"


def wrong_in(record: Run | Measurement | RunEnd, *, long_texts: bool = True) -> Wrong | None:
    """The first value of a record that cannot be; None where all can.

    ``long_texts`` is False where no text can pass its limit, because the whole record is shorter.
    """
    if isinstance(record, Measurement):
        return _measurement(record, long_texts)
    if isinstance(record, Run):
        return _run(record)
    return (
        _names([("run_id", record.run_id)])
        or _time("finished_at", record.finished_at)
        or wrong_count("measured", record.measured)
    )


def wrong_in_values(field: str, values: Mapping[str, Value]) -> Wrong | None:
    """The same for the values of metrics."""
    for name, v in values.items():
        x, low, high = v.value, v.low, v.high
        if name in METRICS:
            if not (0 < x < _INF or (x == 0 and name not in POSITIVE)):
                least = "above 0" if name in POSITIVE else "of 0 or more"
                return Wrong(f"{field}.{name}.value", x, f"is no finite number {least}; leave the metric out")
        elif not -_INF < x < _INF:
            return Wrong(f"{field}.{name}.value", x, "is not a finite number; leave the metric out")
        elif len(name) > NAME_CHARS:
            return _names([(f"{field} (a name)", name)])
        if low is not None and not -_INF < low <= x:
            return Wrong(f"{field}.{name}.low", low, f"is not at or below the value {x!r}; order the interval")
        if high is not None and not x <= high < _INF:
            return Wrong(f"{field}.{name}.high", high, f"is not at or above the value {x!r}; order the interval")
        if not 0 <= v.n <= MAX_COUNT:
            return wrong_count(f"{field}.{name}.n", v.n)
    return None


def wrong_count(field: str, count: int, least: int = 0) -> Wrong | None:
    """Whether a count fits where it is stored."""
    if least <= count <= MAX_COUNT:
        return None
    return Wrong(field, count, f"is not between {least} and {MAX_COUNT}; give the count of what was measured")


def wrong_in_case(case: Case) -> Wrong | None:
    """The same for a case."""
    w = case.workload
    if (
        len(case.benchmark) > NAME_CHARS
        or len(case.backend) > NAME_CHARS
        or len(case.benchmark_version) > NAME_CHARS
        or len(w.operation) > NAME_CHARS
    ):
        return _names(("case." + k, getattr(case, k)) for k in ("benchmark", "backend", "benchmark_version")) or _names(
            [("case.workload.operation", w.operation)]
        )
    if not 0 <= w.weight <= MAX_WEIGHT:
        return Wrong("case.workload.weight", w.weight, f"is not between 0 and {MAX_WEIGHT:g}; give 1 where unknown")
    found = wrong_param(w.params)
    if found is not None:
        name, why = found
        return WrongParam(f"case.workload.params.{name}", w.params[name], why)
    return None


def _measurement(m: Measurement, long_texts: bool) -> Wrong | None:
    wrong = wrong_in_case(m.case)
    if wrong is not None:
        return wrong
    if not 0 <= m.started_at <= MAX_TIME:
        return _time("started_at", m.started_at)
    if not 0 <= m.duration_s <= MAX_DURATION:
        return Wrong("duration_s", m.duration_s, f"is not between 0 and {MAX_DURATION:g} s; give seconds")
    if not 1 <= m.attempt <= MAX_COUNT:
        return wrong_count("attempt", m.attempt, 1)
    wrong = wrong_in_values("metrics", m.metrics)
    if wrong is not None:
        return wrong
    if not m.metrics.keys().isdisjoint(m.case.workload.params):
        name = min(m.metrics.keys() & m.case.workload.params.keys())
        return Wrong("metrics (a name)", name, "is a parameter of this case too; rename one of them")
    wrong = _samples("samples", m.samples) or _samples("warmup", m.warmup)
    if wrong is not None:
        return wrong
    if m.discarded:
        for name, count in m.discarded.items():
            wrong = _names([("discarded (a name)", name)]) or wrong_count(f"discarded.{name}", count)
            if wrong is not None:
                return wrong
    wrong = _telemetry(m.telemetry) if m.telemetry else None
    if wrong is None and long_texts:
        wrong = _texts([("detail", m.detail), ("stop_reason", m.stop_reason)]) or _texts(
            (f"operators[{i}]", x) for i, x in enumerate(m.operators)
        )
    return wrong


def _samples(field: str, groups: Mapping[str, Sequence[float]]) -> Wrong | None:
    for name, found in groups.items():
        above = 0.0 if name.endswith(POSITIVE_SUFFIX) else -_INF
        # A sum is no finite number where any of its terms is none.
        if len(name) <= NAME_CHARS and (not found or (min(found) > above and -_INF < sum(found) < _INF)):
            continue
        if len(name) > NAME_CHARS:
            return _names([(f"{field} (a name)", name)])
        for i, x in enumerate(found):
            if not above < x < _INF:
                what = "finite number above 0" if above == 0 else "finite number"
                return Wrong(f"{field}.{name}[{i}]", x, f"is no {what}; leave the sample out and count it in discarded")
    return None


def _telemetry(found: Mapping[str, Scalar]) -> Wrong | None:
    for name, value in found.items():
        if len(name) > NAME_CHARS:
            return _names([("telemetry (a name)", name)])
        if isinstance(value, str):
            if len(value) > TEXT_CHARS:
                return _texts([(f"telemetry.{name}", value)])
        elif value is not None and not 0 <= value < _INF:
            if not -_INF < value < _INF:
                return Wrong(f"telemetry.{name}", value, "is not a finite number; leave it out or write it as text")
            if name.endswith(COUNTED_SUFFIXES):
                return Wrong(f"telemetry.{name}", value, "is below 0, which nothing of this unit can be; leave it out")
    return None


def _run(run: Run) -> Wrong | None:
    e, m, r = run.environment, run.environment.machine, run.revision
    return (
        _names([("id", run.id), ("suite", run.suite), ("ruler_version", run.ruler_version)])
        or _names((f"revision.{k}", getattr(r, k) or "") for k in ("id", "commit", "kernels_hash"))
        or _names((f"environment.{k}", getattr(e, k)) for k in ("python", "driver", "kernels_hash", "ruler_version"))
        or _names(
            (f"environment.machine.{k}", getattr(m, k))
            for k in ("device_kind", "device_model", "clock_policy", "host", "board_uuid")
        )
        or _texts([("revision.subject", r.subject), ("environment.kernels_path", e.kernels_path)])
        or _mapping("environment.packages", e.packages)
        or _mapping("environment.variables", e.variables)
        or _mapping("environment.machine.details", m.details)
        or _mapping("options", run.options)
        or _time("started_at", run.started_at)
        or (None if r.committed_at is None else _time("revision.committed_at", r.committed_at))
        or wrong_count("planned", run.planned)
        or wrong_count("environment.threads", e.threads)
    )


def _mapping(field: str, found: Mapping[str, Scalar]) -> Wrong | None:
    for name, value in found.items():
        if isinstance(value, float) and not math.isfinite(value):
            return Wrong(f"{field}.{name}", value, "is not a finite number; leave it out or write it as text")
    return _names((f"{field} (a name)", name) for name in found) or _texts(
        (f"{field}.{name}", value) for name, value in found.items() if isinstance(value, str)
    )


def _names(found: Iterable[tuple[str, str]]) -> Wrong | None:
    return _too_long(found, NAME_CHARS)


def _texts(found: Iterable[tuple[str, str]]) -> Wrong | None:
    return _too_long(found, TEXT_CHARS)


def _too_long(found: Iterable[tuple[str, str]], limit: int) -> Wrong | None:
    for field, text in found:
        if len(text) > limit:
            return Wrong(field, text, f"has {len(text)} characters where {limit} are the limit; shorten it")
    return None


def _time(field: str, at: float) -> Wrong | None:
    if 0 <= at <= MAX_TIME:
        return None
    return Wrong(field, at, f"is no time between 0 and {MAX_TIME:g}; give seconds since 1970, UTC")
