"""Options and output that the commands share."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from harness.jsonout import print_json

if TYPE_CHECKING:
    from db.engine import Store

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
    "store_given",
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


@contextlib.contextmanager
def store_given(db: str | None) -> Iterator[Store | None]:
    """The store that was named, for reading; None where none was, or where it is yet to be made."""
    from db.engine import file_of, open_store

    file = None if db is None else file_of(db)
    if db is None or (file is not None and not file.exists()):
        if db is not None:
            note(f"there is no store at {file} yet, and nothing is known from it")
        yield None
        return
    with open_store(db, create=False, read_only=True) as store:
        yield store


def seconds(text: str | None) -> float | None:
    """``--budget`` in seconds, None where it was not given."""
    from harness.duration import seconds as parse

    return None if text is None else parse(text)


def note(text: str) -> None:
    """A message for people, on standard error."""
    print(text, file=sys.stderr)
