"""Whether the parameters of a workload can mean anything, told before anything is measured and when results are read.

Only what holds for every backend: names, types, ranges, names of dtypes and directions, lengths that agree with each
other. What a backend cannot do is the backend's to say.
"""

from __future__ import annotations

import math

from .canonical import Params, Scalar
from .params import NAME_CHARS, PARAMETERS, RESERVED, TEXT_CHARS

#: The only whole numbers among the shared parameters that may be 0.
LENGTHS = ("q_len", "kv_len")
_DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
CHOICES: dict[str, tuple[str, ...]] = {
    "dtype": _DTYPES,
    "kv_dtype": _DTYPES,
    "direction": ("fwd", "bwd"),
    "causal_alignment": ("bottom_right", "top_left"),
}
LARGEST = 2**31 - 1

_LEAST = {name: 0 if name in LENGTHS else 1 for name, kind in PARAMETERS.items() if kind is int}
#: Parameters with few values, and those.
_FEW: dict[str, tuple[Scalar, ...]] = {**CHOICES, **{n: (True, False) for n, k in PARAMETERS.items() if k is bool}}


def wrong_param(params: Params) -> tuple[str, str] | None:
    """The first parameter that cannot be, and why; None where all can."""
    for name, value in params.items():
        # The common kinds first: every measurement of an ingest passes here.
        if type(value) is int:
            if name in _LEAST and _LEAST[name] <= value <= LARGEST:
                continue
        elif name in _FEW and type(value) is not float and value in _FEW[name]:
            continue
        why = _wrong_name(name) or _wrong_value(name, value)
        if why is not None:
            return name, why
    heads_q, heads_kv = params.get("heads_q"), params.get("heads_kv")
    if isinstance(heads_q, int) and isinstance(heads_kv, int) and heads_q % heads_kv:
        return "heads_kv", f"{heads_kv} does not divide heads_q, which is {heads_q}"
    return _wrong_lists(params) if "q_lens" in params or "kv_lens" in params else None


def shown(value: object) -> str:
    """A value for a message: as Python writes it, never long."""
    text = repr(value[:60]) if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _wrong_name(name: str) -> str | None:
    if name in PARAMETERS:
        return None
    if not name.isidentifier():
        return f"has a name ({name[:40]!r}) that is not an identifier; use letters, digits and _"
    if name in RESERVED:
        return "has a name that tables of results use for a column of their own; call the parameter something else"
    if len(name) > NAME_CHARS:
        return f"has a name of {len(name)} characters where {NAME_CHARS} are the limit; shorten it"
    return None


def _wrong_value(name: str, value: Scalar) -> str | None:
    if value is None:
        return None
    kind = PARAMETERS.get(name)
    if isinstance(value, str) and len(value) > TEXT_CHARS:
        return f"has {len(value)} characters where {TEXT_CHARS} are the limit; shorten it"
    if kind is int:
        if isinstance(value, bool) or not isinstance(value, int):
            return f"must be a whole number, not {shown(value)}"
        if not _LEAST[name] <= value <= LARGEST:
            return f"must lie between {_LEAST[name]} and {LARGEST}, not {shown(value)}"
    elif name in CHOICES:
        if value not in CHOICES[name]:
            return f"must be one of {', '.join(CHOICES[name])}, not {shown(value)}"
    elif kind is bool:
        if not isinstance(value, bool):
            return f"must be true or false, not {shown(value)}"
    elif kind is str:
        if not isinstance(value, str):
            return f"must be text, not {shown(value)}"
    elif kind is float and (isinstance(value, bool) or not isinstance(value, int | float)):
        return f"must be a number, not {shown(value)}"
    elif isinstance(value, float) and not math.isfinite(value):
        return f"must be finite, not {shown(value)}"
    return None


def _wrong_lists(params: Params) -> tuple[str, str] | None:
    for name, longest in (("q_lens", "q_len"), ("kv_lens", "kv_len")):
        text = params.get(name)
        if text is None:
            continue
        if not isinstance(text, str) or not all(x.isdecimal() and len(x) < 11 for x in text.split(",")):
            return name, f"must list whole numbers as in '512,1,7', not {shown(text)}"
        lengths = [int(x) for x in text.split(",")]
        if params.get("batch", len(lengths)) != len(lengths):
            return name, f"lists {len(lengths)} sequences where batch is {params['batch']}"
        if params.get(longest, max(lengths)) != max(lengths):
            return name, f"has the maximum {max(lengths)} where {longest} is {params[longest]}"
    return None
