"""measure, doctor, workload import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.measure_flags import FLAGS, argv
from harness.model.suite import SUITES
from harness.model.terms import Exit

from .common import DeviceOption, JsonOption, note, print_json


def measure(**given: Any) -> None:
    """Measure a suite without asv, to a bundle that any machine ingests."""
    from harness.measure import main as measure_main

    from .progress import bar

    with bar() as progress:
        code = measure_main(argv(given), progress=progress)
    raise typer.Exit(code)


def _declare(function: Callable[..., None]) -> None:
    """Give ``function`` the flags of the table as its parameters, for typer to read."""
    parameters = []
    for flag in FLAGS:
        option = typer.Option(flag.name, metavar=flag.metavar or None, help=flag.help)
        plain: Any = {"switch": bool, "repeat": list[str] | None}.get(flag.kind, str | None)
        default = False if flag.kind == "switch" else flag.default
        annotation: Any = Annotated[plain, option]
        parameters.append(Parameter(flag.key, Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters}


_declare(measure)


def doctor(device: DeviceOption = None, json_out: JsonOption = False) -> None:
    """Which backends can be used here, and why not or how to get the others."""
    from dataclasses import asdict

    from harness.device import resolve_device
    from harness.known_issues import found_in
    from harness.worker import WorkerClient, WorkerSpec

    with WorkerClient.connect(WorkerSpec(resolve_device(device))) as client:
        reports, environment = client.reports(), client.environment()
    issues = found_in(environment.packages)
    needs = kv_needs(environment.machine.details)
    nothing = not any(r.usable for r in reports)
    if json_out:
        backends = [asdict(r) for r in reports]
        told = {"backends": backends, "environment": asdict(environment), "known_issues": issues, "kv_memory": needs}
        print_json(told)
        raise typer.Exit(int(Exit.INFRASTRUCTURE if nothing else Exit.CLEAN))
    machine = environment.machine
    print(f"{machine.device_kind}: {machine.device_model} (clocks: {machine.clock_policy})")
    print(f"python {environment.python}, " + ", ".join(f"{k} {v}" for k, v in environment.packages.items()))
    print(f"kernels {environment.kernels_hash} from {environment.kernels_path}\n")
    width = max((len(r.name) for r in reports), default=0)
    for r in sorted(reports, key=lambda r: not r.usable):
        state = "usable" if r.usable else "no"
        print(f"{r.name:<{width}}  {state:<7} {r.version or '':<14} {r.reason or ''}".rstrip())
        if not r.usable and r.remedy:
            print(f"{'':<{width}}          {r.remedy}")
    for i in issues:
        print(
            f"\nknown issue of {i['package']} {i['version']} ({i['provenance']}): {i['symptom']} where {i['predicate']}"
        )
        print(f"  {i['remedy']}")
    for n in (n for n in needs if not n["fits"]):
        need, there = (f"{n[name] / 1e9:.1f} GB" for name in ("kv_bytes", "memory_bytes"))
        print(f"\nsuite {n['suite']} does not fit: keys and values of {n['case']} need {need}, there are {there}")
        print("  the case will be out of memory here; leave it out with --where, or measure on a larger device")
    if nothing:
        raise typer.Exit(int(Exit.INFRASTRUCTURE))


def kv_needs(details: Mapping[str, Any], suites: Sequence[str] = SUITES) -> list[dict[str, Any]]:
    """Per suite the case whose keys and values need the most memory by the model, beside what the device has; nothing
    where that is not known."""
    from harness.catalogue.kv_memory import largest
    from harness.suites import load_suite

    memory = int(details.get("device_memory_bytes") or details.get("memory_bytes") or 0)
    found = []
    for suite in suites if memory else ():
        if (most := largest(load_suite(suite))) is not None:
            size, case = most
            label = f"{case.benchmark} {case.workload.label}"
            found.append(
                {"suite": suite, "case": label, "kv_bytes": size, "memory_bytes": memory, "fits": size <= memory}
            )
    return found


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
