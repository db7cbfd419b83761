"""measure, doctor, workload import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.model.terms import Exit

from .common import DeviceOption, JsonOption, SuiteOption, WhereOption, note, print_json


def measure(
    suite: SuiteOption = "smoke",
    backend: Annotated[
        list[str] | None,
        typer.Option("--backend", metavar="GLOB|MODULE:FUNCTION", help="Backends to ask; may be given again."),
    ] = None,
    where: WhereOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The bundle; resumed where it exists.")
    ] = None,
    device: DeviceOption = None,
    budget: Annotated[str | None, typer.Option("--budget", metavar="TIME", help="Stop after 90s, 15m, 2h.")] = None,
    isolate: Annotated[bool, typer.Option("--isolate", help="A fresh process for each case.")] = False,
    rel_width: Annotated[
        float | None, typer.Option("--rel-width", help="Half-width of the median's interval to stop at.")
    ] = None,
    max_seconds: Annotated[float | None, typer.Option("--max-seconds", help="Cap on sampling one metric.")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", help="Cap on one case, in seconds.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the inputs.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Wider intervals, latency only.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say how much would be measured and end.")] = False,
    list_cases: Annotated[bool, typer.Option("--list", help="Print the cases and measure nothing.")] = False,
    json_out: JsonOption = False,
) -> None:
    """Measure a suite without asv, to a bundle that any machine ingests."""
    from harness.measure import main as measure_main

    from .progress import bar

    args = ["--suite", suite]
    for name, value in (
        ("--where", where), ("--out", out), ("--device", device), ("--budget", budget), ("--rel-width", rel_width),
        ("--max-seconds", max_seconds), ("--timeout", timeout), ("--seed", seed),
    ):  # fmt: skip
        if value is not None:
            args += [name, str(value)]
    for glob in backend or ():
        args += ["--backend", glob]
    switches = {"--isolate": isolate, "--quick": quick, "--dry-run": dry_run, "--list": list_cases, "--json": json_out}
    args += [flag for flag, on in switches.items() if on]
    with bar() as progress:
        code = measure_main(args, progress=progress)
    raise typer.Exit(code)


def doctor(device: DeviceOption = None, json_out: JsonOption = False) -> None:
    """Which backends can be used here, and why not or how to get the others."""
    from dataclasses import asdict

    from harness.device import resolve_device
    from harness.worker import WorkerClient, WorkerSpec

    with WorkerClient.connect(WorkerSpec(resolve_device(device))) as client:
        reports, environment = client.reports(), client.environment()
    if json_out:
        print_json({"backends": [asdict(r) for r in reports], "environment": asdict(environment)})
        return
    machine = environment.machine
    print(f"{machine.device_kind}: {machine.device_model} (clocks: {machine.clock_policy})")
    print(f"python {environment.python}, " + ", ".join(f"{k} {v}" for k, v in environment.packages.items()))
    print(f"kernels {environment.kernels_hash} from {environment.kernels_path}\n")
    width = max(len(r.name) for r in reports)
    for r in sorted(reports, key=lambda r: not r.usable):
        state = "usable" if r.usable else "no"
        print(f"{r.name:<{width}}  {state:<7} {r.version or '':<14} {r.reason or ''}".rstrip())
        if not r.usable and r.remedy:
            print(f"{'':<{width}}          {r.remedy}")
    if not any(r.usable for r in reports):
        raise typer.Exit(int(Exit.INFRASTRUCTURE))


def workload_import(
    log: Annotated[str, typer.Argument(metavar="LOG", help="JSON lines or CSV of shapes, with counts.")],
    name: Annotated[str | None, typer.Option("--name", help="Name of the suite; the log's name by default.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="NAME.suite.json by default.")] = None,
    json_out: JsonOption = False,
) -> None:
    """Turn a log of calls into a weighted suite."""
    from harness.model.workloads import FILE_SUFFIX, write_suite
    from harness.workload_import import import_calls

    workloads = import_calls(log)
    name = name or ("stdin" if log == "-" else Path(log).name.split(".")[0])
    path = out or Path(f"{name}{FILE_SUFFIX}")
    write_suite(path, workloads, name)
    total = sum(w.weight for w in workloads)
    if json_out:
        print_json({"path": str(path), "workloads": len(workloads), "calls": total})
        return
    note(f"{len(workloads)} workloads from {total:g} calls written to {path}")
    note(f"measure them with: attnwatch measure --suite {path}")
