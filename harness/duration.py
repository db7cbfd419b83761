"""Durations as people type them."""

from __future__ import annotations

import re

from .model import InputError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|)")
_UNITS = {"s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str, option: str = "--budget") -> float:
    """``90``, ``90s``, ``15m``, ``2h`` or ``90d`` in seconds; InputError names ``option`` otherwise."""
    match = _DURATION.fullmatch(text.strip())
    if not match or float(match[1]) <= 0:
        raise InputError(f"{option}: {text!r} is no duration; give 90s, 15m, 2h or 90d")
    return float(match[1]) * _UNITS[match[2]]
