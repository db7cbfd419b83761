"""Options and output that the commands share."""

from __future__ import annotations

import json
import re
import sys
from typing import Annotated, Any

import typer

from harness.model.terms import InputError

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

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|)")


def seconds(text: str | None, option: str = "--budget") -> float | None:
    """``90``, ``90s``, ``15m`` or ``2h`` in seconds."""
    if text is None:
        return None
    match = _DURATION.fullmatch(text.strip())
    if not match or float(match[1]) <= 0:
        raise InputError(f"{option}: {text!r} is no duration; give 90s, 15m or 2h")
    return float(match[1]) * {"s": 1, "": 1, "m": 60, "h": 3600}[match[2]]


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
