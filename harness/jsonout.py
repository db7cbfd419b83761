"""JSON for standard output and for files: one policy, which is that NaN and infinities become null."""

from __future__ import annotations

import json
import sys
from typing import Any


def finite(value: Any) -> Any:
    """The same plain values with None for every number that JSON lacks; keys become text."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def dumps(value: Any, indent: int | None = 1) -> str:
    """JSON text in ASCII, so that any terminal and any file name in it passes; no newline at the end."""
    return json.dumps(finite(value), indent=indent, allow_nan=False)


def print_json(value: Any) -> None:
    """JSON alone on standard output."""
    sys.stdout.write(dumps(value) + "\n")
