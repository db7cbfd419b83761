"""triage."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from harness.model.terms import InputError, TriageState

from .common import DbOption, JsonOption, note, print_json


def triage(
    incident: Annotated[str, typer.Argument(metavar="ID")],
    state: Annotated[
        str, typer.Argument(metavar="STATE", help="confirmed, acknowledged, expected, fixed, false_positive.")
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the incident.")],
    owner: Annotated[str | None, typer.Option("--owner", help="Who looks after it.")] = None,
    author: Annotated[str | None, typer.Option("--author", help="Who decides; you by default.")] = None,
    db: DbOption = None,
    json_out: JsonOption = False,
) -> None:
    """Say what an incident is. *expected* makes the level after it the new baseline."""
    from db.engine import open_store
    from db.repository import set_owner
    from db.repository import triage as move

    wanted = _state(state)
    with open_store(db, create=False) as store:
        before = move(store, incident, wanted, reason, author or _user())
        if owner is not None:
            set_owner(store, incident, owner)
    if json_out:
        print_json({"incident": incident, "from": before.value, "to": wanted.value, "owner": owner})
        return
    note(f"{incident}: {before.value} -> {wanted.value}")


def _state(text: str) -> TriageState:
    try:
        return TriageState(text.replace("-", "_"))
    except ValueError:
        # Those that people give; suspect, new and dismissed are the judge's.
        known = "confirmed, acknowledged, expected, fixed, false_positive"
        raise InputError(f"STATE: {text!r}; one of {known}") from None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
