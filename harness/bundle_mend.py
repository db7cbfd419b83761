"""Records as a bundle can hold them: what is measured is kept, what no reader would take is told in words.

Standard library only, as all that writes bundles.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TypeVar

from harness.model import InputError, Measurement, Run, RunEnd, Scalar, Status, Value
from harness.model.bounds import COUNTED_SUFFIXES, MAX_DURATION, wrong_in, wrong_in_values
from harness.model.params import TEXT_CHARS

_CUT = "... (cut)"
T = TypeVar("T")


def acceptable(record: T) -> T:
    """``record`` itself where readers take it; else mended.

    Long texts are cut. Numbers that JSON lacks (NaN, infinities) become text in ``telemetry`` and are left out of
    ``metrics`` with a note there; an open end of an interval is left out. A measurement that still holds what cannot
    be, such as a sample of no time at all, becomes ``invalid`` with that as its detail, and loses its numbers.
    Raises :class:`InputError` for what none of this mends.
    """
    values = getattr(record, "values", None)
    if isinstance(record, Run):
        record = _cut_run(record)  # type: ignore[assignment]
        wrong = wrong_in(record)
    elif isinstance(record, Measurement):
        if (wrong := wrong_in(record)) is None:
            return record
        mended = _mended(record)
        if (wrong := wrong_in(mended)) is not None:
            mended = _bare(mended, f"what was measured cannot be: {wrong}")
            wrong = wrong_in(mended)
        record = mended  # type: ignore[assignment]
    elif isinstance(record, RunEnd):
        wrong = wrong_in(record)
    elif isinstance(values, dict):
        noted: dict[str, Scalar] = {}
        record = dataclasses.replace(record, values=_finite(values, noted))  # type: ignore[type-var]
        wrong = wrong_in_values("values", record.values)  # type: ignore[attr-defined]
    else:
        raise InputError(f"{type(record).__name__} is no record of a bundle")
    if wrong is not None:
        raise InputError(f"this record cannot be written to a bundle: {wrong}")
    return record


def _mended(m: Measurement) -> Measurement:
    noted: dict[str, Scalar] = {}
    for name, value in m.telemetry.items():
        if isinstance(value, float) and not math.isfinite(value):
            noted[name] = repr(float(value))
        elif isinstance(value, float | int) and value < 0 and name.endswith(COUNTED_SUFFIXES):
            noted[name] = repr(value)
        else:
            noted[name] = _cut(value) if isinstance(value, str) else value
    metrics = _finite(m.metrics, noted)
    return dataclasses.replace(
        m,
        detail=_cut(m.detail),
        stop_reason=_cut(m.stop_reason),
        operators=[_cut(x) for x in m.operators],
        metrics=metrics,
        telemetry=noted,
    )


def _bare(m: Measurement, why: str) -> Measurement:
    """``m`` without its numbers: ``invalid`` if it was ok, with ``why`` in its detail."""
    ok = m.status is Status.OK
    return Measurement(
        m.case,
        Status.INVALID if ok else m.status,
        m.started_at,
        m.duration_s if 0 <= m.duration_s <= MAX_DURATION else 0.0,
        why if ok else _cut(f"{m.detail} ({why})"),
        m.attempt,
        telemetry=m.telemetry,
    )


def _finite(values: Mapping[str, Value], noted: dict[str, Scalar]) -> dict[str, Value]:
    kept: dict[str, Value] = {}
    for name, value in values.items():
        if math.isfinite(value.value):
            # An interval may be open at one side; its finite end is worth keeping.
            low, high = (None if e is None or not math.isfinite(e) else e for e in (value.low, value.high))
            kept[name] = dataclasses.replace(value, low=low, high=high)
        else:
            noted[f"non_finite.{name}"] = repr(float(value.value))
    return kept


def _cut_run(run: Run) -> Run:
    e = run.environment
    return dataclasses.replace(
        run,
        options=_cut_texts(run.options),
        revision=dataclasses.replace(run.revision, subject=_cut(run.revision.subject)),
        environment=dataclasses.replace(
            e,
            variables=_cut_texts(e.variables),
            machine=dataclasses.replace(e.machine, details=_cut_texts(e.machine.details)),
        ),
    )


V = TypeVar("V", bound=Scalar)


def _cut_texts(found: dict[str, V]) -> dict[str, V]:
    return {k: _cut(v) if isinstance(v, str) else v for k, v in found.items()}  # type: ignore[misc]


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS else text[: TEXT_CHARS - len(_CUT)] + _CUT
