"""notify."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from harness.model.terms import InfrastructureError

from .common import DbOption, JsonOption, PolicyOption, note, print_json


def notify(
    report: Annotated[
        str | None, typer.Argument(metavar="REPORT", help="What nightly --json printed; for coverage alarms.")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="Services as apprise reads them; tags are owners.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="FILE", help="What was told; beside the store by default.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the notices; send and remember nothing.")] = False,
    policy: PolicyOption = None,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """Tell people of new confirmed regressions, recoveries, lost coverage and nights that did not happen.

    Each event once, grouped by owner, outside the policy's quiet hours. Addresses may stand in ATTNWATCH_NOTIFY.
    """
    from db.engine import open_store
    from harness.notices import Ledger, events, grouped, send
    from harness.notices.events import over
    from harness.notices.sending import services
    from harness.policy import find_policy

    rules = find_policy(policy)
    to = None if dry_run else services(config)
    with open_store(db, create=False, read_only=True) as store, Ledger(state or _beside(db)).held() as ledger:
        found = events(store, rules, time.time(), ledger.told, report)
        if to is None:
            fresh = [e for e in found if e.key not in ledger.told and not e.quiet]
            notices = grouped(fresh)
            if json_out:
                print_json({"notices": [asdict(n) for n in notices]})
            else:
                print("\n\n".join(f"{n.title}{f' (for {n.owner})' if n.owner else ''}\n{n.body}" for n in notices))
            return
        gone = over(ledger.told, found)
        if gone:
            ledger.forget(gone)
        outcome = send(found, ledger, to)
    if json_out:
        print_json(asdict(outcome))
    for key in outcome.unsure:
        note(f"{key}: an earlier run ended while it was being sent; it is not sent again")
    note(f"{len(outcome.sent)} told, {len(outcome.known)} known, {len(outcome.held)} held back in quiet hours")
    if outcome.failed:
        raise InfrastructureError(f"{len(outcome.failed)} could not be sent; run the same command again")


def _beside(db: str | None) -> Path:
    """Beside a store that is a file; in the working folder otherwise."""
    name = db or "attnwatch.db"
    path = name.removeprefix("sqlite:///")
    return Path("attnwatch.notices.json" if "://" in path else f"{path}.notices.json")
