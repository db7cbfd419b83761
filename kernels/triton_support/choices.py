"""Which tile sizes were used, and where they came from: the shipped table, or what was tuned on this device.

Nothing is ever tuned inside a call. Who has measured candidates keeps the winners with :func:`save`, in the file that
``ATTNWATCH_TUNED`` names; where it is unset, the shipped table is used. What a process chose stands
in :func:`made`, so that a run can record it and a changed choice is visible.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from .tiles import Config

VARIABLE = "ATTNWATCH_TUNED"
SCHEMA = 1

_made: dict[tuple[str, str], tuple[Config, str]] = {}


def choose(device: str, key: str, shipped: Config) -> Config:
    """The tuned configuration of ``key`` on the device of that name, else ``shipped``; remembered either way."""
    known = _made.get((device, key))
    if known is not None:
        return known[0]
    path = os.environ.get(VARIABLE)
    tuned = _load(path).get(device, {}).get(key) if path else None
    choice = (shipped, "shipped") if tuned is None else (tuned, "tuned")
    _made[device, key] = choice
    return choice[0]


def made() -> list[dict[str, Any]]:
    """Every choice of this process: ``device``, ``key``, ``source`` (shipped or tuned) and the configuration."""
    return [
        {"device": device, "key": key, "source": source, **config.as_dict()}
        for (device, key), (config, source) in sorted(_made.items(), key=lambda item: item[0])
    ]


def forget() -> None:
    """Read the file anew at the next choice."""
    _made.clear()
    _load.cache_clear()


def save(path: Path, device: str, found: Mapping[str, Config]) -> None:
    """Add tuned configurations of one device to a file; those of other devices and keys stay."""
    every = {d: {k: c.as_dict() for k, c in keys.items()} for d, keys in _load(str(path)).items()}
    every.setdefault(device, {}).update({key: config.as_dict() for key, config in found.items()})
    text = json.dumps({"schema": SCHEMA, "devices": every}, indent=1, sort_keys=True) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    forget()


@lru_cache(maxsize=4)
def _load(path: str) -> dict[str, dict[str, Config]]:
    """device -> key -> configuration. ``ValueError`` names the file and what in it is wrong."""
    file = Path(path)
    if not file.exists():
        return {}
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']} is not {SCHEMA}; tune again")
        return {
            device: {key: Config(**config) for key, config in keys.items()} for device, keys in data["devices"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a file of tuned tile sizes ({error}); remove it or tune again") from error
