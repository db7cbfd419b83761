"""ingest, import-check, export, db."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from harness.model.terms import InputError

from .common import DbOption, JsonOption, note, print_json

Paths = Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files of results, or folders of them.")]


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
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="The file; - is standard output.")] = "-",
    form: Annotated[str | None, typer.Option("--format", metavar="FORMAT", help="csv (the default) or json.")] = None,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """A run's measurements as CSV or JSON: parameters, statuses, metrics."""
    from db.engine import open_store
    from harness.export import write_csv, write_json

    if form not in (None, "csv", "json"):
        raise InputError(f"--format: {form!r} is neither csv nor json")
    if json_out and form == "csv":
        raise InputError("--json and --format csv contradict each other; give one of them")
    with open_store(db, create=False, read_only=True) as store:
        rows = (write_json if json_out or form == "json" else write_csv)(store, run, out)
    note(f"{rows} rows")


def db_upgrade(db: DbOption = None, json_out: JsonOption = False) -> None:
    """Bring the store to the newest schema; a new store is created."""
    from db.engine import open_store
    from db.schema import HEAD

    with open_store(db) as store:
        name = store.name
    if json_out:
        print_json({"store": name, "schema": HEAD})
        return
    note(f"{name} is at the newest schema")


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
