"""Reading workload parameters: every error names the parameter, what it holds and what it may hold."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model import InputError, Params

from .counting import ITEMSIZE


class ParamError(InputError):
    """A workload parameter is missing or cannot be used."""


def integer(params: Params, name: str, *, low: int = 1) -> int:
    """A whole number of at least ``low``."""
    value = params.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ParamError(f"parameter {name}: {value!r} is no whole number of at least {low}")
    return value


def optional_integer(params: Params, name: str) -> int | None:
    """Like :func:`integer`, with None for an absent or empty parameter."""
    return None if params.get(name) is None else integer(params, name)


def optional_number(params: Params, name: str) -> float | None:
    """A number, or None where the parameter is absent or empty."""
    value = params.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParamError(f"parameter {name}: {value!r} is no number")
    return float(value)


def flag(params: Params, name: str) -> bool:
    """True or false; absent is false."""
    value = params.get(name, False)
    if not isinstance(value, bool):
        raise ParamError(f"parameter {name}: {value!r} is neither true nor false")
    return value


def choice(params: Params, name: str, among: Sequence[str], default: str | None = None) -> str:
    """One of ``among``; ``default`` where absent or empty, if there is a default."""
    value = params.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or value not in among:
        raise ParamError(f"parameter {name}: {value!r} is none of {', '.join(among)}")
    return value


def dtype_name(params: Params) -> str:
    """Name of the element type, one of those with a known size."""
    return choice(params, "dtype", tuple(ITEMSIZE))


def lengths(params: Params, name: str) -> tuple[int, ...]:
    """Lengths per sequence from a comma text such as ``"512,1,7,64"``; as many as ``batch``, zero allowed."""
    found = numbers(params, name)
    if len(found) != integer(params, "batch"):
        raise ParamError(f"parameter {name}: {len(found)} lengths for batch {params.get('batch')}")
    return found


def numbers(params: Params, name: str) -> tuple[int, ...]:
    """Whole numbers of at least 0 from a comma text."""
    value = params.get(name)
    texts = str(value).split(",") if isinstance(value, str | int) and not isinstance(value, bool) else []
    try:
        found = tuple(int(t) for t in texts)
    except ValueError:
        found = ()
    if not found or min(found) < 0:
        raise ParamError(f"parameter {name}: {value!r} is no list of lengths such as '512,1,7'")
    return found
