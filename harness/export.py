"""Measurements of a run as CSV: parameters, statuses, metrics."""

from __future__ import annotations

import contextlib
import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from db.engine import Store
from db.queries import latest_run, measurements_of_run

from .model import InfrastructureError, InputError

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(store: Store, run_id: str | None, out: str) -> int:
    """Write one run (the latest where None); returns the number of rows. Formulas of a spreadsheet become text."""
    if run_id is None:
        newest = latest_run(store)
        if newest is None:
            raise InputError(f"{store.name}: holds no runs; `attnwatch nightly` makes one")
        run_id = newest.id
    rows = measurements_of_run(store, run_id)
    if not rows:
        raise InputError(f"{store.name}: no run {run_id!r}, or it holds no measurements")
    params = list(dict.fromkeys(k for r in rows for k in r.case.columns))
    metrics = sorted({m for r in rows for m in r.metrics})
    with _open(out) as file:
        writer = csv.writer(file)
        writer.writerow([*params, "status", "detail", *(x for m in metrics for x in (m, f"{m}_low", f"{m}_high"))])
        for r in rows:
            values = [v for m in metrics for v in _value(r.metrics.get(m))]
            writer.writerow([*(_safe(r.case.columns.get(p)) for p in params), r.status, _safe(r.detail), *values])
    return len(rows)


def _value(v: object) -> tuple[object, object, object]:
    return ("", "", "") if v is None else (v.value, v.low, v.high)  # type: ignore[attr-defined]


def _safe(cell: object) -> object:
    return "'" + cell if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


@contextlib.contextmanager
def _open(out: str) -> Iterator[TextIO]:
    if out == "-":
        yield sys.stdout
        return
    try:
        with Path(out).open("w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as err:
        raise InfrastructureError(f"{out}: cannot be written: {err.strerror}") from None
