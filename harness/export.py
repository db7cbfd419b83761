"""Measurements of a run as CSV or JSON: parameters, statuses, metrics."""

from __future__ import annotations

import contextlib
import csv
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from db.engine import Store
from db.queries import MeasurementRow, RunRow, latest_run, measurements_of_run, run

from .jsonout import dumps
from .model import InfrastructureError, InputError

#: What a spreadsheet takes for the beginning of a formula, full-width signs included.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
#: Columns before the parameters; a parameter of such a name is told apart by a dot.
_RUN_COLUMNS = ("run", "revision", "machine", "time")


def write_csv(store: Store, run_id: str | None, out: str) -> int:
    """Write one run (the latest where None); returns the number of rows. Formulas of a spreadsheet become text."""
    found, rows = measurements(store, run_id)
    params = list(dict.fromkeys(k for r in rows for k in r.case.columns))
    about = [_safe(found.id), _safe(found.revision), _safe(found.device_model), found.started_at]
    metrics = sorted({m for r in rows for m in r.metrics})
    with open_out(out) as file:
        writer = csv.writer(file)
        names = [f"{p}." if p in _RUN_COLUMNS else p for p in params]
        writer.writerow(
            [*_RUN_COLUMNS, *names, "status", "detail", *(x for m in metrics for x in (m, f"{m}_low", f"{m}_high"))]
        )
        for r in rows:
            values = [v for m in metrics for v in _value(r.metrics.get(m))]
            writer.writerow(
                [*about, *(_safe(r.case.columns.get(p)) for p in params), r.status, _safe(r.detail), *values]
            )
    return len(rows)


def write_json(store: Store, run_id: str | None, out: str) -> int:
    """Write one run (the latest where None) as JSON: the run, and each measurement with its metrics."""
    found, rows = measurements(store, run_id)
    plain = {
        "run": asdict(found),
        "measurements": [
            {
                **r.case.columns,
                "case": r.case.key,
                "status": r.status,
                "detail": r.detail,
                "attempt": r.attempt,
                "metrics": {name: asdict(value) for name, value in r.metrics.items()},
            }
            for r in rows
        ],
    }
    with open_out(out) as file:
        file.write(dumps(plain) + "\n")
    return len(rows)


def measurements(store: Store, run_id: str | None) -> tuple[RunRow, list[MeasurementRow]]:
    """A run (the latest where None) and what was measured in it. InputError where there is none."""
    found = latest_run(store) if run_id is None else run(store, run_id)
    if found is None and run_id is None:
        raise InputError(f"{store.name}: holds no runs; `attnwatch nightly` makes one")
    rows = [] if found is None else measurements_of_run(store, found.id)
    if found is None or not rows:
        raise InputError(f"{store.name}: no run {run_id!r}, or it holds no measurements")
    return found, rows


def _value(v: object) -> tuple[object, object, object]:
    return ("", "", "") if v is None else (v.value, v.low, v.high)  # type: ignore[attr-defined]


def _safe(cell: object) -> object:
    return "'" + cell if isinstance(cell, str) and cell.startswith(FORMULA) else cell


@contextlib.contextmanager
def open_out(out: str) -> Iterator[TextIO]:
    """The file to write to; ``-`` is standard output. InfrastructureError where it cannot be written."""
    if out == "-":
        yield sys.stdout
        return
    try:
        with Path(out).open("w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as err:
        raise InfrastructureError(f"{out}: cannot be written: {err.strerror}") from None
