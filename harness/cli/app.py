"""All commands in one application. Each module holds the commands of one room."""

from __future__ import annotations

import typer

from . import bisecting, detecting, explaining, judging, measuring, night, people, settling, store

app = typer.Typer(
    name="attnwatch",
    help="Continuous benchmarking and regression service for attention kernels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command()(night.nightly)
app.command()(measuring.measure)
app.command()(store.ingest)
app.command(name="import-check")(store.import_check)
app.command()(judging.compare)
app.command()(detecting.detect)
app.command()(explaining.explain)
app.command()(measuring.doctor)
app.command()(store.export)
app.command()(night.dashboard)
app.command()(people.triage)
app.command()(settling.confirm)
app.command()(bisecting.bisect)

workload = typer.Typer(help="Workload files: sweep what a team serves.", no_args_is_help=True)
workload.command(name="import")(measuring.workload_import)
app.add_typer(workload, name="workload")

db = typer.Typer(help="The store.", no_args_is_help=True)
db.command(name="upgrade")(store.db_upgrade)
db.command(name="info")(store.db_info)
app.add_typer(db, name="db")
