"""detect."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from harness.model.terms import Exit, InputError

from .common import DbOption, JsonOption, note, print_json


def detect(
    csv: Annotated[
        str | None, typer.Option("--csv", metavar="FILE", help="Series: series,value[,time][,better]; - is stdin.")
    ] = None,
    pool: Annotated[
        bool, typer.Option("--pool", help="The file is one suite of nightly series that end on the same night.")
    ] = False,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """Regressions in the store, or change points of the series in a file.

    Ends with 1 where a change for the worse is recent enough to be a suspect still.
    """
    if csv is None:
        if pool:
            raise InputError("--pool goes with --csv FILE; the store is always judged as a suite")
        code = detect_store(db, json_out)
    else:
        code = _detect_file(csv, pool, json_out)
    raise typer.Exit(int(code))


def _detect_file(csv: str, pool: bool, json_out: bool) -> Exit:
    from harness.detect_csv import adverse, detect_csv

    result = detect_csv(csv, pool=pool)
    if json_out:
        print_json(result)
    else:
        _print(result)
    return Exit.FINDING if adverse(result) else Exit.CLEAN


def detect_store(db: str | None, json_out: bool) -> Exit:
    """Incidents that the store holds open; 1 where one is confirmed and nobody has looked at it yet."""
    from db.engine import open_store
    from harness.judge.listing import any_new, open_incidents, overdue_suites

    with open_store(db, create=False, read_only=True) as store:
        rows, late = open_incidents(store), overdue_suites(store, time.time())
    for text in late:
        note(f"coverage: {text}")
    if json_out:
        print_json({"incidents": rows, "overdue": late})
    elif not rows:
        note("no open incidents")
    for r in [] if json_out else rows:
        effect = "" if r["effect"] is None else f"  {r['effect'] - 1:+.0%}"
        state = "shadow" if r["shadow"] and r["state"] == "new" else r["state"]
        print(f"{r['id']}  {state:<12} {r['title']}{effect}  since {(r['first_bad_revision'] or '')[:12]}")
    return Exit.FINDING if any_new(rows) else Exit.CLEAN


def _print(result: dict[str, Any]) -> None:
    changed = {name: s for name, s in result["series"].items() if s["change_points"]}
    for name, s in changed.items():
        for c in s["change_points"]:
            ratio = f"x{c['ratio']:.4g}" if c["ratio"] is not None else f"{c['before']:.6g} -> {c['after']:.6g}"
            interval = "" if c["ratio_ci"] is None else f" [{c['ratio_ci'][0]:.4g}, {c['ratio_ci'][1]:.4g}]"
            print(f"{c['verdict']:<7} {c['state']:<10} {c['kind']:<8} at {c['index']:>6}  {ratio}{interval}  {name}")
    linear = sum(s["scale"] == "linear" for s in result["series"].values())
    gaps = sum(s["gaps"] for s in result["series"].values())
    note(f"{len(result['series'])} series, {len(changed)} with changes, {gaps} gaps")
    if linear:
        note(f"{linear} series hold zeros or negatives and were judged on the linear scale, without ratios")
