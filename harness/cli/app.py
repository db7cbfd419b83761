"""All commands in one application. Each module holds the commands of one room."""

from __future__ import annotations

from typing import Annotated

import typer

from . import (
    backfilling,
    bisecting,
    commenting,
    compiling,
    database,
    detecting,
    explaining,
    fleet,
    following,
    judging,
    measuring,
    night,
    notifying,
    numerics,
    observing,
    people,
    policy,
    settling,
    store,
)

app = typer.Typer(
    name="attnwatch",
    help="Continuous benchmarking and regression service for attention kernels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(version("asv_bench_attnwatch"))
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Continuous benchmarking and regression service for attention kernels."""


app.command()(night.nightly)
app.command()(measuring.measure)
app.command()(fleet.fleet)
app.command()(store.ingest)
app.command(name="import-check")(store.import_check)
app.command()(judging.compare)
app.command()(compiling.static)
app.command()(backfilling.backfill)
app.command()(commenting.comment)
app.command()(notifying.notify)
app.command()(detecting.detect)
app.command()(explaining.explain)
app.command()(measuring.doctor)
app.command()(store.export)
app.command()(night.dashboard)
app.command()(people.triage)
app.command()(settling.confirm)
app.command()(following.follow)
app.command(context_settings={"allow_extra_args": True})(bisecting.bisect)
app.command()(observing.metrics)
app.command()(observing.traces)
app.command(name="trace-nan")(numerics.trace_nan)
app.command(name="diff-snapshots")(numerics.diff_snapshots)

workload = typer.Typer(help="Workload files: sweep what a team serves.", no_args_is_help=True)
workload.command(name="import")(measuring.workload_import)
app.add_typer(workload, name="workload")

rules = typer.Typer(help="The policy file: what is worth telling.", no_args_is_help=True)
rules.command(name="check")(policy.policy_check)
app.add_typer(rules, name="policy")

db = typer.Typer(help="The store.", no_args_is_help=True)
db.command(name="upgrade")(database.upgrade)
db.command(name="info")(database.info)
db.command(name="copy")(database.copy)
db.command(name="backup")(database.backup)
db.command(name="restore")(database.restore)
db.command(name="prune")(database.prune)
app.add_typer(db, name="db")
