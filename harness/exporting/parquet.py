"""All runs as one Parquet file: a row for each metric of each measurement, one row group for each run.

pyarrow is there because Streamlit needs it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from db.engine import Store
from db.export import MetricRow, metric_rows
from db.queries import measurements_of_run, run
from harness.model import InfrastructureError, InputError


def write_parquet(store: Store, run_ids: Sequence[str], out: str) -> int:
    """Write runs; returns the number of rows. A measurement without metrics has one row with an empty ``value``."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    if out == "-":
        raise InputError("--out: Parquet is no text; name a file")
    text, number, small = pa.string(), pa.float64(), pa.int64()
    schema = pa.schema(
        [
            ("run", text), ("suite", text), ("revision", text), ("commit", text), ("committed_at_s", number),
            ("machine", text), ("device_model", text), ("ruler", text), ("run_started_at_s", number),
            ("benchmark", text), ("version", text), ("operation", text), ("backend", text), ("params", text),
            ("status", text), ("detail", text), ("started_at_s", number), ("metric", text), ("unit", text),
            ("better", text), ("value", number), ("low", number), ("high", number), ("n", small),
        ]
    )  # fmt: skip
    meanings = metric_rows(store)
    count = 0
    try:
        with pq.ParquetWriter(Path(out), schema, compression="zstd") as writer:
            for run_id in run_ids:
                rows = _rows(store, run_id, meanings)
                columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
                arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
                count += len(rows)
    except OSError as error:
        raise InfrastructureError(f"{out}: cannot be written: {error.strerror or error}") from None
    return count


def _rows(store: Store, run_id: str, meanings: dict[str, MetricRow]) -> list[tuple[Any, ...]]:
    found = run(store, run_id)
    if found is None:
        raise InputError(f"{store.name}: no run {run_id!r}")
    about = (
        found.id, found.suite, found.revision, found.commit, found.committed_at, found.machine, found.device_model,
        found.ruler_version, found.started_at,
    )  # fmt: skip
    out: list[tuple[Any, ...]] = []
    for m in measurements_of_run(store, run_id):
        case = m.case
        params = json.dumps(case.params, sort_keys=True)
        what = (
            *about, case.benchmark, case.version, case.operation, case.backend, params, m.status, m.detail,
            m.started_at,
        )  # fmt: skip
        for name, v in m.metrics.items():
            metric = meanings.get(name, MetricRow(name, "1", "none"))
            out.append((*what, name, metric.unit, metric.better, v.value, v.low, v.high, v.n))
        if not m.metrics:
            out.append((*what, None, None, None, None, None, None, None))
    return out
