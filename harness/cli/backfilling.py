"""backfill."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .common import DbOption, DeviceOption, JsonOption, SuiteOption, WhereOption, note, print_json, seconds


def backfill(
    suite: SuiteOption = "smoke",
    commits: Annotated[
        str | None, typer.Option("--range", metavar="A..B", help="Commits to measure; the last ones by default.")
    ] = None,
    last: Annotated[int, typer.Option("--last", min=1, help="How many commits without --range.")] = 10,
    every: Annotated[int, typer.Option("--every", min=1, help="Only every so many of them.")] = 1,
    backend: Annotated[list[str] | None, typer.Option("--backend", metavar="GLOB|MODULE:FUNCTION")] = None,
    where: WhereOption = None,
    budget: Annotated[str | None, typer.Option("--budget", metavar="TIME", help="Begin no case after it.")] = None,
    device: DeviceOption = None,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """Measure earlier commits of kernels with today's ruler into the store, evenly spread, resumable."""
    from db.engine import open_store
    from harness import backfill as work
    from harness.device import refuse_foreign_processes, resolve_device
    from harness.locks import sweep_lock
    from harness.selection import select
    from harness.suites import outside_modules

    from .progress import bar

    limit = seconds(budget)
    deadline = None if limit is None else time.time() + limit
    chosen, repo = resolve_device(device), Path.cwd()
    listed = work.commits(repo, commits, last, every)
    cases = select(suite, backend or (), where)
    refuse_foreign_processes(chosen)
    asked = work.BackfillOptions(
        repo, chosen, suite, cases, modules=outside_modules({c.backend for c in cases}), deadline=deadline
    )
    with open_store(db) as store, sweep_lock(chosen, f"backfill --suite {suite}"), bar() as shown:
        filled = work.backfill(store, listed, asked, note, shown)
    if json_out:
        print_json({"suite": suite, "commits": [asdict(f) for f in filled]})
        return
    for f in filled:
        print(f"{f.state:<9} {f.commit[:12]} {f.subject}" + (f"  ({f.why})" if f.why else ""))
    print(", ".join(f"{n} {state}" for state, n in Counter(f.state for f in filled).items()))
