"""Whether the parameters of a workload can mean anything, told before anything is measured.

Only what holds for every backend: ranges, names of dtypes and directions, lengths that agree with each other. What a
backend cannot do is the backend's to say.
"""

from __future__ import annotations

from .canonical import Params, Scalar
from .params import PARAMETERS

#: The only whole numbers among the shared parameters that may be 0.
_LENGTHS = ("q_len", "kv_len")
_CHOICES: dict[str, tuple[str, ...]] = {
    "dtype": ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
    "direction": ("fwd", "bwd"),
    "causal_alignment": ("bottom_right", "top_left"),
}
_LARGEST = 2**31 - 1


def wrong_param(params: Params) -> tuple[str, str] | None:
    """The first parameter that cannot be, and why; None where all can."""
    for name, value in params.items():
        why = _wrong_value(name, value)
        if why is not None:
            return name, why
    heads_q, heads_kv = params.get("heads_q"), params.get("heads_kv")
    if isinstance(heads_q, int) and isinstance(heads_kv, int) and heads_q % heads_kv:
        return "heads_kv", f"{heads_kv} does not divide heads_q, which is {heads_q}"
    return _wrong_lists(params)


def _wrong_value(name: str, value: Scalar) -> str | None:
    if value is None:
        return None
    if PARAMETERS.get(name) is int:
        least = 0 if name in _LENGTHS else 1
        if isinstance(value, bool) or not isinstance(value, int):
            return f"must be a whole number, not {value!r}"
        if not least <= value <= _LARGEST:
            return f"must lie between {least} and {_LARGEST}, not {value}"
    elif name in _CHOICES:
        if value not in _CHOICES[name]:
            return f"must be one of {', '.join(_CHOICES[name])}, not {value!r}"
    elif PARAMETERS.get(name) is bool:
        if not isinstance(value, bool):
            return f"must be true or false, not {value!r}"
    elif isinstance(value, float) and not -1e300 < value < 1e300:
        return f"must be finite, not {value!r}"
    return None


def _wrong_lists(params: Params) -> tuple[str, str] | None:
    for name, longest in (("q_lens", "q_len"), ("kv_lens", "kv_len")):
        text = params.get(name)
        if text is None:
            continue
        if not isinstance(text, str) or not all(x.isdecimal() and len(x) < 11 for x in text.split(",")):
            return name, f"must list whole numbers as in '512,1,7', not {text!r}"
        lengths = [int(x) for x in text.split(",")]
        if params.get("batch", len(lengths)) != len(lengths):
            return name, f"lists {len(lengths)} sequences where batch is {params['batch']}"
        if params.get(longest, max(lengths)) != max(lengths):
            return name, f"has the maximum {max(lengths)} where {longest} is {params[longest]}"
    return None
