"""Options and output that the commands share."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from harness.jsonout import print_json

__all__ = [
    "DbOption",
    "DeviceOption",
    "JsonOption",
    "PolicyOption",
    "SuiteOption",
    "WhereOption",
    "note",
    "print_json",
    "seconds",
]

DbOption = Annotated[
    str | None,
    typer.Option("--db", envvar="ATTNWATCH_DB", metavar="URL", help="Store: a path or a SQLAlchemy URL."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON alone on standard output.")]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy", envvar="ATTNWATCH_POLICY", metavar="PATH", help="Policy file; attnwatch.toml here by default."
    ),
]
SuiteOption = Annotated[str, typer.Option("--suite", metavar="NAME|FILE", help="A named suite or a workload file.")]
WhereOption = Annotated[
    str | None, typer.Option("--where", metavar="EXPR", help="Only cases for which the expression holds.")
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", metavar="DEVICE", help="cpu or cuda:N; a GPU where there is one.")
]


def seconds(text: str | None) -> float | None:
    """``--budget`` in seconds, None where it was not given."""
    from harness.duration import seconds as parse

    return None if text is None else parse(text)


def note(text: str) -> None:
    """A message for people, on standard error."""
    print(text, file=sys.stderr)
