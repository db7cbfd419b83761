"""Measuring one case: inputs, correctness gate, timing, memory. Runs with torch, triton, numpy and NVML alone.

Importing this package imports no torch; the first use of a name does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bench import Bench
    from .controls import Controls
    from .failures import CaseFailed
    from .prepared import PreparedCase

__all__ = ["Bench", "CaseFailed", "Controls", "PreparedCase"]

_HOMES = {"Bench": "bench", "PreparedCase": "prepared", "Controls": "controls", "CaseFailed": "failures"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
