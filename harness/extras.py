"""Modules that only an extra brings."""

from __future__ import annotations

import importlib
from typing import Any

from harness.model import InfrastructureError


def needed(module: str, extra: str) -> Any:
    """A module of ``extra``; InfrastructureError with the remedy where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InfrastructureError(
            f"{error}; `pip install -c constraints.txt '.[{extra}]'` in a checkout brings what is missing"
        ) from None
