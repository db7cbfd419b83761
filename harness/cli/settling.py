"""confirm."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from .common import DbOption, DeviceOption, JsonOption, PolicyOption, note, print_json, seconds


def confirm(
    incident: Annotated[str, typer.Argument(metavar="ID")],
    measurements: Annotated[
        int, typer.Option("--measurements", min=1, max=200, help="Most combinations to measure.")
    ] = 12,
    budget: Annotated[str | None, typer.Option("--budget", metavar="TIME")] = None,
    device: DeviceOption = None,
    policy: PolicyOption = None,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """Measure untested combinations until one explanation of an incident remains."""
    from db.engine import open_store
    from harness.device import refuse_foreign_processes, resolve_device
    from harness.judge.settle import confirm_incident
    from harness.locks import sweep_lock
    from harness.policy import find_policy

    held = find_policy(policy)
    chosen = resolve_device(device)
    refuse_foreign_processes(chosen)
    limit = seconds(budget)
    with open_store(db, create=False) as store, sweep_lock(chosen, f"confirm {incident}"):
        report = confirm_incident(
            store, incident, Path.cwd(), chosen, measurements=measurements,
            deadline=None if limit is None else time.time() + limit, say=note, policy=held,
        )  # fmt: skip
    if json_out:
        print_json(report)
        return
    for t in report["triggers"]:
        print(t["text"])
        for text in t["alternatives"][:3]:
            print(f"    or: {text}")
    print(f"{'settled' if report['settled'] else 'not settled'} after {len(report['measured'])} measurements")
