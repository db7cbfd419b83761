"""compare."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from harness.model.params import PARAMETERS
from harness.model.terms import Exit, InputError

from .common import (
    DbOption,
    DeviceOption,
    JsonOption,
    PolicyOption,
    SuiteOption,
    WhereOption,
    note,
    print_json,
    seconds,
    store_given,
)
from .explaining import counts_of

Pairs = list[str] | None

#: What goes with ``--csv``.
_WITH_CSV = {"csv", "relevant", "json_out"}


def compare(
    context: typer.Context,
    base: Annotated[
        str | None, typer.Option("--base", metavar="REF", help="Revision of kernels to compare with.")
    ] = None,
    head: Annotated[str | None, typer.Option("--head", metavar="REF", help="The working tree by default.")] = None,
    base_python: Annotated[str | None, typer.Option("--base-python", metavar="PATH")] = None,
    head_python: Annotated[str | None, typer.Option("--head-python", metavar="PATH")] = None,
    base_env: Annotated[Pairs, typer.Option("--base-env", metavar="K=V")] = None,
    head_env: Annotated[Pairs, typer.Option("--head-env", metavar="K=V")] = None,
    csv: Annotated[str | None, typer.Option("--csv", metavar="FILE", help="Samples: case,side,value.")] = None,
    suite: SuiteOption = "smoke",
    backend: Annotated[Pairs, typer.Option("--backend", metavar="GLOB|MODULE:FUNCTION")] = None,
    where: WhereOption = None,
    relevant: Annotated[
        float | None, typer.Option("--relevant", help="Smallest relative change worth telling; 0.02, or the policy's.")
    ] = None,
    policy: PolicyOption = None,
    device: DeviceOption = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Begin no case after it; the likeliest come first.")
    ] = None,
    affected: Annotated[
        bool, typer.Option("--affected", help="Only cases that the change from --base to --head can touch.")
    ] = False,
    fleet: Annotated[
        str | None, typer.Option("--fleet", metavar="ADDRESS", help="Spread over a Ray cluster; auto finds one.")
    ] = None,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """Interleaved A/B of two revisions, interpreters or environments, or of samples in a file.

    Two interpreters begin with empty kernel caches, and the answer is go or no-go for head. A budget begins with
    boundary cases, then those that were unstable lately (in the store, where one is given), then those whose kernels
    changed.
    """
    from harness.compare import adverse, cold_caches, compare_csv, compare_sides, sides
    from harness.detection.ab import ABOptions

    if relevant is not None and not 0 < relevant < 10:
        raise InputError(f"--relevant: {relevant} must lie between 0 and 10")
    judge = ABOptions() if relevant is None else ABOptions(relevant=relevant)
    if csv is not None:
        _refuse_beside_csv(context)
        report = compare_csv(csv, judge)
        if json_out:
            print_json(report)
        else:
            _print_csv(report)
        raise typer.Exit(int(Exit.FINDING if adverse(report) else Exit.CLEAN))

    from harness.affected import affected as touched_by
    from harness.compare import nothing_touched
    from harness.device import refuse_foreign_processes, resolve_device
    from harness.likely import Likely
    from harness.locks import sweep_lock
    from harness.model import MeasureOptions
    from harness.policy import find_policy
    from harness.selection import select
    from harness.suites import outside_modules

    from .progress import bar

    rules = find_policy(policy)
    own = None if relevant is not None else lambda case: rules.minimum_effect(case.columns)
    cases = select(suite, backend or (), where)
    budget_s = seconds(budget)
    if affected and base is None:
        raise InputError("--affected asks what changed between two revisions; give --base REF")
    change = touched_by(Path.cwd(), base, head) if base is not None and (affected or budget_s is not None) else None
    told: dict[str, Any] = {}
    if affected and change is not None:
        kept = [c for c in cases if change.touches(c)]
        told = {"affected": change.told(), "unaffected": len(cases) - len(kept)}
        if not kept:
            _end_without(nothing_touched(base or "", head or "working tree", change) | told, len(cases), json_out)
        cases = kept
    chosen = resolve_device(device)
    modules, variables = outside_modules({c.backend for c in cases}), (tuple(base_env or ()), tuple(head_env or ()))
    a, b = sides(
        Path.cwd(),
        chosen,
        refs=(base, head),
        pythons=(base_python, head_python),
        variables=variables,
        modules=modules,
    )
    likely = None
    if budget_s is not None:
        likely = Likely(_unstable(db), None if change is None or change.everything else change.touches)
    upgrade = base_python is not None or head_python is not None
    if fleet is not None and upgrade:
        raise InputError("--fleet compares revisions and variables; an interpreter is of one host")
    with contextlib.ExitStack() as held:
        shown, run = held.enter_context(bar()), None
        show = None if shown is None else lambda i, n, case: shown.show(i, n, f"{case.backend} {case.workload.label}")
        if fleet is not None:
            from harness.fleet.crew import fleet as gathered
            from harness.fleet.host import Sides
            from harness.fleet.pairs import alike, run_pairs

            devices = alike(held.enter_context(gathered(fleet, device, modules, note)), note)
            both = Sides(str(Path.cwd()), (base, head), variables, modules)
            run = partial(
                run_pairs, devices, sides=both, options=MeasureOptions(), judge=judge, relevant=own, say=note,
                progress=show,
            )  # fmt: skip
        else:
            refuse_foreign_processes(chosen)
            held.enter_context(sweep_lock(chosen, "attnwatch compare"))
        pair = held.enter_context(cold_caches((a, b))) if upgrade else (a, b)
        report = compare_sides(
            *pair,
            cases,
            MeasureOptions(),
            judge,
            budget_s=budget_s,
            progress=show,
            relevant=own,
            likely=likely,
            run=run,
        )
    report |= told
    if json_out:
        print_json(report)
    else:
        _print_sides(report, upgrade)
    if not report["gate"]["go"]:
        raise typer.Exit(int(Exit.FINDING))
    if not any(c["verdict"] for c in report["cases"]):
        note("no case could be measured on both sides; nothing was compared")
        raise typer.Exit(int(Exit.INFRASTRUCTURE))
    raise typer.Exit(int(Exit.CLEAN))


def _end_without(report: dict[str, Any], cases: int, json_out: bool) -> NoReturn:
    """Nothing to measure is no failure."""
    note(f"nothing is measured: {report['affected']['why']}; {cases} cases are not touched")
    if json_out:
        print_json(report)
    raise typer.Exit(int(Exit.CLEAN))


def _unstable(db: str | None) -> set[str]:
    """Keys of the cases that were unstable lately, where there is a store that knows."""
    from db.health import unstable_cases

    with store_given(db) as store:
        return set() if store is None else unstable_cases(store)


def _refuse_beside_csv(context: typer.Context) -> None:
    """A flag that would be ignored is refused: who gave it expects it to do something."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in _WITH_CSV and source is not None and source.name == "COMMANDLINE":
            raise InputError(f"--csv judges the samples of a file and takes no --{name.replace('_', '-')}")


def _print_csv(report: dict[str, Any]) -> None:
    for name, c in report["cases"].items():
        low, high = (f"{end:.4f}" if end is not None else "?" for end in c["ratio_ci"])
        least = c["smallest_detectable"]
        sees = "sees nothing" if least is None else f"sees {least:.1%}"
        ratio = "no ratio" if c["ratio"] is None else f"{c['ratio']:.4f} [{low}, {high}]"
        print(f"{c['verdict']:<10} {ratio}  {sees}  {name}")


def _print_sides(report: dict[str, Any], upgrade: bool) -> None:
    print(f"base: {report['base']}   head: {report['head']}")
    if upgrade:
        _print_gate(report["gate"])
    for t in report["triggers"]:
        effect = f", {t['effect'] - 1:+.0%}" if t["effect"] else ""
        print(f"{t['text']}: {counts_of(t)}{effect}")
        for text in t["alternatives"][:3]:
            print(f"    or, as the measurements cannot tell: {text}")
    told = [c for c in report["cases"] if c["verdict"] or c["base_status"] != c["head_status"]]
    for c in sorted(told, key=lambda c: (-c["lost_s"], -(c["ratio"] or 1e9))):
        shape = " ".join(f"{k}={v}" for k, v in c.items() if k in PARAMETERS)
        if c["verdict"] is None:
            print(f"{c['base_status']} -> {c['head_status']}  {c['backend']} {shape}: {c['detail']}")
        else:
            interval = f"[{c['ratio_low']:.3f}, {c['ratio_high']:.3f}]"
            print(f"{c['verdict']:<10} {c['ratio']:.3f} {interval}  {c['backend']} {shape}")
    quiet = len(report["cases"]) - len(told)
    if quiet:
        note(f"{quiet} cases cannot run on this device")
    if report.get("unaffected"):
        note(f"{report['unaffected']} cases were not measured: {report['affected']['why']}")
    if report["left_out"]:
        kinds = ", ".join(f"{n} {kind}" for kind, n in report["left_out_kinds"].items())
        note(f"{len(report['left_out'])} cases were left out when the budget ended ({kinds})")


def _print_gate(gate: dict[str, Any]) -> None:
    print("go" if gate["go"] else f"no go: {'; '.join(gate['reasons'])}")
    if gate["weighted_ratio"]:
        print(f"  the workloads, by weight, take {gate['weighted_ratio'] - 1:+.1%} on head")
    if gate["first_call_s"]:
        base, head = gate["first_call_s"]
        print(f"  first calls with empty kernel caches: {base:.2f} s on base, {head:.2f} s on head")
