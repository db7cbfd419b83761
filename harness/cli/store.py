"""ingest, import-check, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from harness.exporting import FORMATS
from harness.model.terms import InputError

from .common import DbOption, JsonOption, note, print_json

FormatOption = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="The format, where the content shall not decide.")
]
Paths = Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files of results, or folders of them.")]


def ingest(paths: Paths, form: FormatOption = None, db: DbOption = None, json_out: JsonOption = False) -> None:
    """Take results into the store, ours and those of other tools; safe to repeat.

    History that was measured elsewhere is judged at once: `attnwatch detect` then tells what regressed.
    """
    from db.engine import open_store
    from harness.imports import import_paths, judge_new

    from .progress import bar

    with open_store(db) as store:
        with bar() as shown:
            report = import_paths(store, paths, form, None if shown is None else shown.records)
        incidents = judge_new(store)
    report["incidents"] = incidents
    _print_report(report, json_out)
    if incidents:
        found = "1 regression" if len(incidents) == 1 else f"{len(incidents)} regressions"
        note(f"{found} in the imported history; `attnwatch detect` lists them")


def import_check(paths: Paths, form: FormatOption = None, json_out: JsonOption = False) -> None:
    """What an ingest into an empty store would take and drop, without writing anything."""
    from harness.imports import check_paths

    from .progress import bar

    with bar() as shown:
        report = check_paths(paths, form, None if shown is None else shown.records)
    _print_report(report, json_out)


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
    form: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help=f"One of {', '.join(FORMATS)}; csv by default.")
    ] = None,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """A run's measurements as CSV or JSON or for other tools; asv and parquet take all runs unless --run names one."""
    from db.engine import open_store
    from harness.exporting import write

    if form is not None and form not in FORMATS:
        raise InputError(f"--format: {form!r} is none of {', '.join(FORMATS)}")
    if json_out and form == "csv":
        raise InputError("--json and --format csv contradict each other; give one of them")
    with open_store(db, create=False, read_only=True) as store:
        rows = write(store, form or ("json" if json_out else "csv"), run, out)
    if json_out and out != "-":
        print_json({"out": out, "rows": rows})
    note(f"{rows} rows")
