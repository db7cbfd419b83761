"""explain."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from harness.model.terms import InputError

from .common import DbOption, JsonOption, note, print_json


def explain(
    incident: Annotated[str | None, typer.Argument(metavar="[ID]", help="An incident of the store.")] = None,
    csv: Annotated[
        str | None, typer.Option("--csv", metavar="FILE", help="One row per combination, with regressed or ratio.")
    ] = None,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """The smallest predicates over parameters that set an incident off, or the regressed rows of a file."""
    if (csv is None) == (incident is None):
        raise InputError("explain: give the ID of an incident, or --csv FILE (- is standard input)")
    report = _of_file(csv) if csv is not None else _of_incident(str(incident), db)
    if json_out:
        print_json(report)
    else:
        print_report(report)


def _of_file(csv: str) -> dict[str, Any]:
    from harness.explain_csv import explain_csv

    return explain_csv(csv)


def _of_incident(incident: str, db: str | None) -> dict[str, Any]:
    from db.engine import open_store
    from harness.judge.settle import explain_incident

    with open_store(db, create=False, read_only=True) as store:
        return explain_incident(store, incident)


def print_report(report: dict[str, Any]) -> None:
    """Triggers for people: what, how sure, what else would fit."""
    for trigger in report["triggers"]:
        effect = ""
        if trigger["effect"] is not None:
            effect = f", {trigger['effect'] - 1:+.1%}"
            if trigger["effect_ci"] is not None:
                low, high = trigger["effect_ci"]
                effect += f" [{low - 1:+.1%}, {high - 1:+.1%}]"
        print(trigger["text"])
        print(f"    {counts_of(trigger)}{effect}")
        for text in trigger["alternatives"][:_SHOWN]:
            print(f"    or: {text}")
        more = len(trigger["alternatives"]) - _SHOWN
        if more > 0:
            print(f"    or {more} more that these combinations cannot tell apart (--json lists them)")
        for row in trigger["counter_examples"][:_SHOWN]:
            print(f"    inside, not regressed: {_combination(row)}")
    if not report["triggers"]:
        few = len(report.get("unexplained", ()))
        print(
            "no trigger: nothing separates the regressed combinations better than chance would"
            + (f"; {few} are few to tell from, so measure more around them" if 0 < few < _FEW else "")
        )
    if report["unexplained"]:
        note(f"{len(report['unexplained'])} regressed combinations are not explained")


def counts_of(trigger: dict[str, Any]) -> str:
    """The evidence of a trigger in a report."""
    from harness.explain.result import evidence

    return evidence(*(trigger[k] for k in ("regressed_inside", "inside", "regressed_total", "total")))


def _combination(row: dict[str, Any]) -> str:
    return " ".join(f"{k}={v}" for k, v in row.items())


_SHOWN = 3
#: Fewer regressed combinations than this seldom suffice to name what they share.
_FEW = 6
