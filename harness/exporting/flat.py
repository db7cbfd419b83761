"""One run for services that keep histories: Bencher Metric Format, and custom JSON of github-action-benchmark."""

from __future__ import annotations

from typing import Any

from db.engine import Store
from db.export import MetricRow, metric_rows
from db.queries import MeasurementRow
from harness.export import measurements, open_out
from harness.jsonout import dumps
from harness.model import InputError, Status

#: Longest name of a benchmark that Bencher takes.
_LONGEST = 1024
#: Bencher has this measure from the start, in nanoseconds.
_BENCHER = {"latency_s": ("latency", 1e9)}
#: The unit that people read; the action shows it as it is.
_SHOWN = {"s": ("ns", 1e9), "B": ("bytes", 1.0)}


def write_bencher(store: Store, run_id: str | None, out: str) -> int:
    """Bencher Metric Format of a run (the latest where None); returns the number of values."""
    _, rows = measurements(store, run_id)
    plain: dict[str, dict[str, dict[str, float]]] = {}
    count = 0
    for r in _good(rows):
        measures = plain.setdefault(case_name(r)[:_LONGEST], {})
        for name, v in r.metrics.items():
            measure, factor = _BENCHER.get(name, (name, 1.0))
            ends = (("value", v.value), ("lower_value", v.low), ("upper_value", v.high))
            measures[measure] = {key: x * factor for key, x in ends if x is not None}
            count += 1
    _write(plain, out)
    return count


def write_action(store: Store, run_id: str | None, out: str, *, better: str) -> int:
    """The list that the action takes as ``customSmallerIsBetter`` or, with ``better="higher"``, as its opposite.

    A file holds metrics of one direction; InputError where the run has none.
    """
    _, rows = measurements(store, run_id)
    meanings = metric_rows(store)
    plain: list[dict[str, Any]] = []
    for r in _good(rows):
        for name, v in r.metrics.items():
            metric = meanings.get(name, MetricRow(name, "1", "none"))
            if metric.better != better:
                continue
            unit, factor = _SHOWN.get(metric.unit, (metric.unit, 1.0))
            entry: dict[str, Any] = {"name": f"{case_name(r)} {name}", "unit": unit, "value": v.value * factor}
            if v.low is not None and v.high is not None:
                entry["range"] = f"± {(v.high - v.low) / 2 * factor:.6g}"
            plain.append(entry)
    if not plain:
        raise InputError(f"{store.name}: the run has no metric of which {better} is better")
    _write(plain, out)
    return len(plain)


def case_name(row: MeasurementRow) -> str:
    """A case in one line: benchmark, backend, parameters."""
    parts = [row.case.benchmark, row.case.backend, row.case.label]
    return " ".join(p for p in parts if p)


def _good(rows: list[MeasurementRow]) -> list[MeasurementRow]:
    return [r for r in rows if r.status == Status.OK]


def _write(plain: Any, out: str) -> None:
    with open_out(out) as file:
        file.write(dumps(plain) + "\n")
