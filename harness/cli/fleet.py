"""fleet."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.model.terms import Exit

from .common import DbOption, DeviceOption, JsonOption, SuiteOption, WhereOption, note, print_json, seconds, store_given

if TYPE_CHECKING:
    from harness.fleet.sweep import Kind
    from harness.model import Run

AddressOption = Annotated[
    str, typer.Option("--address", envvar="RAY_ADDRESS", help="Of the Ray cluster; auto finds one, local makes one.")
]


def fleet(
    suite: SuiteOption = "smoke",
    backend: Annotated[list[str] | None, typer.Option("--backend", metavar="GLOB|MODULE:FUNCTION")] = None,
    where: WhereOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The bundle, resumed where it exists.")
    ] = None,
    address: AddressOption = "auto",
    device: DeviceOption = None,
    costs: Annotated[
        str | None, typer.Option("--costs", metavar="FILE", help="A bundle of an earlier run, to balance by.")
    ] = None,
    budget: Annotated[str | None, typer.Option("--budget", metavar="TIME", help="Begin no case after it.")] = None,
    db: DbOption = None,
    again: Annotated[bool, typer.Option("--again", help="Measure what the store holds already, too.")] = False,
    json_out: JsonOption = False,
) -> None:
    """Measure a suite on all devices of a Ray cluster at once; each kind of device measures all of it.

    What a lost host leaves goes to the others. Broken off, the same command goes on. Of what the store holds, where one
    is given, nothing is measured again: the same ruler, kernels, environment and case.
    """
    from harness import sharding
    from harness.fleet.crew import fleet as gathered
    from harness.fleet.sweep import Asked, measure
    from harness.model import MeasureOptions
    from harness.model.workloads import suite_name
    from harness.selection import select
    from harness.suites import outside_modules
    from harness.sweep import run_options

    from .progress import bar

    cases = select(suite, backend or (), where)
    budget_s, options = seconds(budget), MeasureOptions()
    told = run_options(options, backends=",".join(sorted(backend or ())), where=where or "")
    with bar() as shown, gathered(address, device, outside_modules({c.backend for c in cases}), note) as devices:
        note(f"measuring on {', '.join(d.name for d in devices)}")
        deadline = None if budget_s is None else time.time() + budget_s
        asked = Asked(suite_name(suite), cases, options, told, sharding.costs(costs), deadline, _known(db, again))
        show = None if shown is None else lambda i, n, case: shown.show(i, n, f"{case.backend} {case.workload.label}")
        kinds = measure(devices, asked, out or Path(f"attnwatch-{suite_name(suite)}-fleet.jsonl"), note, show)
    _tell(kinds, json_out)
    raise typer.Exit(int(Exit.CLEAN))


def _known(db: str | None, again: bool) -> Callable[[Run], Collection[str]]:
    """Keys of the cases whose results are stored; none where nobody named a store."""

    def known(run: Run) -> Collection[str]:
        from db.coverage import already_measured

        with store_given(None if again else db) as store:
            return () if store is None else already_measured(store, run)

    return known


def _tell(kinds: list[Kind], json_out: bool) -> None:
    if json_out:
        print_json({"runs": [_plain(k) for k in kinds]})
    for k in kinds:
        counts = ", ".join(f"{n} {status}" for status, n in sorted(k.counts.items())) or "nothing new"
        note(f"{k.run.environment.machine.device_model}: {counts}; bundle: {k.bundle}")
        if k.known:
            note(f"{k.known} cases are in the store and were not measured again")
        if k.left:
            note(f"{k.left} cases are left; the same command goes on from here")


def _plain(k: Kind) -> dict[str, Any]:
    return {
        "run": k.run.id, "bundle": str(k.bundle), "device": k.run.environment.machine.device_model,
        "devices": k.devices, "counts": dict(k.counts), "by_device": dict(k.by_device), "earlier": k.earlier,
        "known": k.known, "remaining": k.left,
    }  # fmt: skip
