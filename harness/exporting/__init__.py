"""Results in the formats of other tools. One format is one name in :data:`FORMATS` and one line in :func:`write`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.model.terms import InputError

if TYPE_CHECKING:
    from db.engine import Store

FORMATS = ("csv", "json", "asv", "parquet", "bencher", "github-action-benchmark", "github-action-benchmark-higher")


def write(store: Store, form: str, run_id: str | None, out: str) -> int:
    """Write what the store holds in format ``form`` to ``out``; the number of rows or values.

    ``asv`` (a folder) and ``parquet`` take all runs where ``run_id`` is None, the others the latest. The two for
    github-action-benchmark hold metrics of which lower, or higher, is better.
    """
    if form in ("asv", "parquet"):
        from db.export import run_ids

        wanted = [run_id] if run_id is not None else run_ids(store)
        if not wanted:
            raise InputError(f"{store.name}: holds no runs; `attnwatch nightly` makes one")
        if form == "parquet":
            from .parquet import write_parquet

            return write_parquet(store, wanted, out)
        if out == "-":
            raise InputError("--out: asv results are a folder; name one, which is then created")
        from .asv import AsvExport

        return AsvExport(store, Path(out)).write(wanted)
    if form in ("csv", "json"):
        from harness.export import write_csv, write_json

        return (write_csv if form == "csv" else write_json)(store, run_id, out)
    from .flat import write_action, write_bencher

    if form == "bencher":
        return write_bencher(store, run_id, out)
    return write_action(store, run_id, out, better="higher" if form.endswith("-higher") else "lower")
