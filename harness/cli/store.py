"""ingest, import-check, export, db."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .common import DbOption, JsonOption, note, print_json

Paths = Annotated[list[Path], typer.Argument(metavar="PATH...", help="Bundles, or folders of bundles.")]


def ingest(paths: Paths, db: DbOption = None, json_out: JsonOption = False) -> None:
    """Take results into the store; safe to repeat."""
    from db.engine import open_store
    from harness.imports import import_paths

    with open_store(db) as store:
        report = import_paths(store, paths)
    _print_report(report, json_out)


def import_check(paths: Paths, json_out: JsonOption = False) -> None:
    """What an ingest would take and drop, without writing anything."""
    from harness.imports import check_paths

    _print_report(check_paths(paths), json_out)


def _print_report(report: dict[str, Any], json_out: bool) -> None:
    if json_out:
        print_json(report)
        return
    print(f"taken {report['taken']}, already there {report['duplicates']}, dropped {report['dropped']}")
    for reason, count in sorted(report["reasons"].items(), key=lambda item: -item[1]):
        print(f"  {count} x {reason}")
    for warning in report["warnings"]:
        note(f"warning: {warning}")


def export(
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="One run; the latest by default.")] = None,
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="CSV file; - is standard output.")] = "-",
    db: DbOption = None,
) -> None:
    """A run's measurements as CSV: parameters, statuses, metrics."""
    from db.engine import open_store
    from harness.export import write_csv

    with open_store(db, create=False, read_only=True) as store:
        rows = write_csv(store, run, out)
    note(f"{rows} rows")


def db_upgrade(db: DbOption = None) -> None:
    """Bring the store to the newest schema; a new store is created."""
    from db.engine import open_store

    with open_store(db) as store:
        note(f"{store.name} is at the newest schema")


def db_info(db: DbOption = None, json_out: JsonOption = False) -> None:
    """What the store holds."""
    from db.engine import open_store
    from db.queries import row_counts

    with open_store(db, create=False, read_only=True) as store:
        held = row_counts(store)
    if json_out:
        print_json(held)
        return
    for name, number in held.items():
        print(f"{name:<14}{number:>12,}")
