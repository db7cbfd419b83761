"""Canonical text of parameters and injective keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

Scalar = bool | int | float | str | None
Params = Mapping[str, Scalar]


def canonical_json(value: object) -> str:
    """One text per value: sorted keys, no spaces, nothing unescaped, so that keys cannot collide."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def content_key(*parts: object) -> str:
    """64 hex digits (SHA-256) over the canonical JSON of ``parts``."""
    return hashlib.sha256(canonical_json(list(parts)).encode()).hexdigest()


def label(params: Params) -> str:
    """Readable and reversible text of parameters: ``batch=1 causal=True dtype='float16'``.

    Order of the mapping is kept. ``parse_label(label(p)) == dict(p)``.
    """
    return " ".join(f"{_name(k)}={v!r}" for k, v in params.items())


def parse_label(text: str) -> dict[str, Scalar]:
    """Inverse of :func:`label`. Raises ``ValueError`` on anything else; nothing is evaluated."""
    import ast

    out: dict[str, Scalar] = {}
    rest = text
    while rest:
        name, eq, rest = rest.partition("=")
        if not eq or not name.isidentifier():
            raise ValueError(f"not a parameter label at {name!r} in {text!r}")
        end = _token_end(rest)
        value = ast.literal_eval(rest[:end])
        if value is not None and not isinstance(value, bool | int | float | str):
            raise ValueError(f"{name} has a value that is no scalar in {text!r}")
        out[name] = value
        rest = rest[end:].removeprefix(" ")
    return out


def _name(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"parameter name {name!r} is not an identifier")
    return name


def _token_end(text: str) -> int:
    if text[:1] not in ("'", '"'):
        end = text.find(" ")
        return len(text) if end < 0 else end
    i = 1
    while i < len(text) and text[i] != text[0]:
        i += 2 if text[i] == "\\" else 1
    return i + 1
