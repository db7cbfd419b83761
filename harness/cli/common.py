"""Options and output that the commands share."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

DbOption = Annotated[
    str | None,
    typer.Option("--db", envvar="ATTNWATCH_DB", metavar="URL", help="Store: a path or a SQLAlchemy URL."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON alone on standard output.")]
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


def print_json(value: Any) -> None:
    """JSON alone on standard output; NaN and infinities become null."""
    json.dump(_finite(value), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def note(text: str) -> None:
    """A message for people, on standard error."""
    print(text, file=sys.stderr)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
