"""static."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.model.terms import Exit, InputError, Reason

from .common import DbOption, JsonOption, PolicyOption, WhereOption, note, print_json

if TYPE_CHECKING:
    from harness.static.records import StaticRecord


def static(
    base: Annotated[
        str | None, typer.Option("--base", metavar="REF", help="Revision to compare with, instead of the store.")
    ] = None,
    head: Annotated[str | None, typer.Option("--head", metavar="REF", help="The working tree by default.")] = None,
    targets: Annotated[str, typer.Option("--targets", metavar="N,...", help="Architectures.")] = "80,90,100",
    grid: Annotated[str, typer.Option("--grid", metavar="GRID", help="pull_request or full.")] = "pull_request",
    where: WhereOption = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write a bundle and judge nothing.")] = None,
    add_to: Annotated[
        Path | None,
        typer.Option("--add-to", metavar="REPORT", help="Put it into a report of compare, for one comment."),
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Targets compiled at a time; by cores.")] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="WHY", help="manual or nightly.")] = "manual",
    reports: Annotated[Path, typer.Option("--reports", metavar="DIR", help="Where the reports go.")] = Path(
        "reports/static"
    ),
    policy: PolicyOption = None,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """Compile our kernels without a GPU; store registers, spills, occupancy and instructions; tell what got worse."""
    from db.engine import open_store
    from harness import static_sweep as work
    from harness.policy import find_policy
    from harness.report import as_plain, summary, write_reports

    from .progress import bar

    _refuse(base, out, add_to, where, grid, reason)
    rules = find_policy(policy)
    held = _read(add_to) if add_to else {}
    options = work.StaticOptions(
        Path.cwd(), _targets(targets), grid, where, jobs=jobs or min(len(_targets(targets)), len(_cores()))
    )
    done = 0
    with bar() as shown:

        def tell(record: StaticRecord) -> None:
            nonlocal done
            done += 1
            if shown is not None:
                shown.rows(f"variants compiled, {record.configuration} for {record.target}", done)

        before = None if base is None else work.compile_kernels(options, base, tell)
        compiled = work.compile_kernels(options, head, tell)
        if out is not None:
            runs = work.bundle(out, compiled, options, reason=Reason(reason))
        elif before is not None:
            report = work.compare(before, compiled, options, rules)
        else:
            with open_store(db) as store:
                report = work.store_and_judge(store, compiled, options, rules, reason=Reason(reason))
    if out is not None:
        _told_bundle(out, runs, done, json_out)
        return
    written = [] if base is not None else write_reports(report, reports)
    if add_to is not None:
        _write(add_to, {**held, "static": as_plain(report)})
    if json_out:
        print_json({**as_plain(report), "written": written})
    else:
        print(summary(report))
        if written:
            print(f"\nreports: {' '.join(written)}")
    raise typer.Exit(int(Exit.FINDING if report.new_confirmed else Exit.CLEAN))


def _refuse(
    base: str | None, out: Path | None, add_to: Path | None, where: str | None, grid: str, reason: str
) -> None:  # fmt: skip
    """What would only be noticed when all is compiled, or not at all."""
    from harness.static.bundle import SUITES

    if base is not None and out is not None:
        raise InputError("--out: writes a bundle and judges nothing; leave --base out")
    if add_to is not None and base is None:
        raise InputError("--add-to: needs --base, which the report of compare is about too")
    if where and base is None and out is None:
        raise InputError("--where: a part of the grid is compared with --base or written with --out, not stored")
    if grid not in SUITES:
        raise InputError(f"--grid: {grid!r} is none of {', '.join(SUITES)}")
    if reason not in (Reason.MANUAL, Reason.NIGHTLY):
        raise InputError(f"--reason: {reason!r} is neither manual nor nightly")


def _targets(text: str) -> tuple[int, ...]:
    from harness.static.limits import LIMITS

    known = [name.removeprefix("sm_") for name in LIMITS]
    found = [part.strip().removeprefix("sm_") for part in text.split(",")]
    for part in found:
        if part not in known:
            raise InputError(f"--targets: {part!r} is none of {', '.join(known)}")
    return tuple(dict.fromkeys(int(part) for part in found))


def _cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}


def _read(path: Path) -> dict[str, Any]:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise InputError(f"--add-to {path}: {err}; give what `attnwatch compare --json` printed") from None
    if not isinstance(held, dict) or not isinstance(held.get("cases"), list):
        raise InputError(f"--add-to {path}: field cases: is missing; give what `attnwatch compare --json` printed")
    return held


def _write(path: Path, report: dict[str, Any]) -> None:
    from harness.jsonout import dumps

    temporary = path.with_suffix(".tmp")
    temporary.write_text(dumps(report) + "\n", encoding="utf-8")
    temporary.replace(path)


def _told_bundle(out: Path, runs: list[str], compiled: int, json_out: bool) -> None:
    if json_out:
        print_json({"bundle": str(out), "runs": runs, "variants": compiled})
    note(f"{compiled} variants compiled; bundle: {out}; store it with: attnwatch ingest {out}")
