"""What is stored of an attempt, and whether a record handed over again says the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from harness.model import InputError, Measurement

from . import samples as codec
from . import tables as t
from .bulk import clean, table_of

Content = dict[str, Any]

#: Ids in one IN list.
_AT_ONCE = 1000


class BadMeasurement(InputError):
    """A measurement that cannot be stored. ``position`` is its place in what was handed over, from 0."""

    def __init__(self, position: int, text: str) -> None:
        super().__init__(text)
        self.position = position


def check_repeats(
    connection: Connection,
    batch: Sequence[tuple[str, Measurement]],
    repeats: Sequence[tuple[int, int]],
    made: Mapping[int, Measurement],
) -> None:
    """Whether what is handed over again says what is there already; raises :class:`BadMeasurement` where not.

    ``repeats`` are (position in ``batch``, id of what it repeats); ``made`` holds those of this batch, not stored yet.
    """
    wanted = sorted({i for _, i in repeats if i not in made})
    known: dict[int, Content] = {}
    for start in range(0, len(wanted), _AT_ONCE):
        known |= _stored(connection, wanted[start : start + _AT_ONCE])
    for position, row_id in repeats:
        run_id, m = batch[position]
        there = known[row_id] if row_id in known else content(made[row_id])
        given = content(m)
        if isinstance(there["samples"], bytes):  # only their digest is left
            given |= {"samples": codec.pruned(m.samples, m.warmup), "warmup": {}}
        if wrong := differences(given, there):
            case = m.case
            raise BadMeasurement(
                position,
                f"attempt {m.attempt} of {case.benchmark[:80]} {case.backend[:80]} {case.workload.label[:200]} in run "
                f"{run_id[:80]!r} is already stored with other content ({', '.join(wrong)[:200]}); give what was "
                "measured again an attempt or a run of its own",
            )


def content(m: Measurement) -> Content:
    """All that the store keeps of a measurement besides its place, as comparable values."""
    return {
        "status": m.status.value,
        "detail": clean(m.detail),
        "started_at": m.started_at,
        "duration_s": m.duration_s,
        "stop_reason": clean(m.stop_reason),
        "operators": _text(m.operators),
        "telemetry": _text(m.telemetry),
        "discarded": _text(m.discarded),
        "samples": m.samples,
        "warmup": m.warmup,
        "metrics": {clean(name): (v.value, v.low, v.high, v.n) for name, v in m.metrics.items()},
    }


def _stored(connection: Connection, wanted: Sequence[int]) -> dict[int, Content]:
    """The same of stored measurements, by their ids."""
    m, v, name = table_of(t.Measurement).c, table_of(t.MetricValue).c, table_of(t.Metric).c
    metrics: dict[int, dict[str, tuple[Any, ...]]] = {}
    query = select(v.measurement_id, name.name, v.value, v.low, v.high, v.n).where(v.measurement_id.in_(wanted))
    for i, metric, *numbers in connection.execute(query.join(table_of(t.Metric), name.id == v.metric_id)):
        metrics.setdefault(i, {})[metric] = tuple(numbers)
    found: dict[int, Content] = {}
    columns = select(
        m.id, m.status, m.detail, m.started_at, m.duration_s, m.stop_reason, m.operators, m.telemetry, m.discarded,
        m.samples,
    )  # fmt: skip
    for row in connection.execute(columns.where(m.id.in_(wanted))):
        samples, warmup = codec.decode(row.samples)
        found[row.id] = {
            "status": row.status,
            "detail": row.detail,
            "started_at": row.started_at,
            "duration_s": row.duration_s,
            "stop_reason": row.stop_reason,
            "operators": _text(row.operators),
            "telemetry": _text(row.telemetry),
            "discarded": _text(row.discarded),
            "samples": row.samples if codec.is_pruned(row.samples) else samples,
            "warmup": warmup,
            "metrics": metrics.get(row.id, {}),
        }
    return found


def differences(given: Content, stored: Content) -> list[str]:
    """Names of the fields that differ; of groups such as ``metrics``, the names within."""
    out: list[str] = []
    for field, value in given.items():
        other = stored[field]
        if value == other:
            continue
        if isinstance(value, Mapping):
            out += [f"{field}.{k}" for k in {**value, **other} if value.get(k) != other.get(k)]
        else:
            out.append(field)
    return out


def _text(value: object) -> str:
    # Text rather than equality: 1, 1.0 and true are not the same.
    return json.dumps(value, sort_keys=True) if value else ""
