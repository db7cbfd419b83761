"""Records to plain JSON values and back, exactly: every float round-trips, and nothing unknown is let through.

``to_plain`` gives dicts, lists and scalars that ``json.dumps`` takes; ``from_plain`` checks names and types and
raises :class:`InputError` naming the field. NaN and infinities are refused both ways: a number that is none
belongs into a status, not into a metric.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from .terms import InputError

T = TypeVar("T")
Decoder = Callable[[object, str], Any]

_MISSING = dataclasses.MISSING


def to_plain(record: object) -> dict[str, Any]:
    """Fields of a dataclass record as plain values, in order of declaration.

    Raises :class:`InputError` for NaN, infinities and values that JSON has no form for.
    """
    if not dataclasses.is_dataclass(record) or isinstance(record, type):
        raise InputError(f"{type(record).__name__} is not a record")
    plain = _encode(record, type(record).__name__.lower())
    assert isinstance(plain, dict)
    return plain


def from_plain(cls: type[T], plain: object) -> T:
    """Record of class ``cls`` from what :func:`to_plain` gave.

    Unknown fields, missing fields without a default and wrong types raise :class:`InputError` with the path of
    the field, such as ``measurement.case.workload.params.batch``. An integer is taken for a float; a bool is not.
    """
    hint: Any = cls
    record = _decoder(hint)(plain, cls.__name__.lower())
    assert isinstance(record, cls)
    return record


def _encode(value: object, path: str) -> Any:
    if value is None or isinstance(value, bool | str):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{path} is {value}, which is no measured number")
        return float(value)  # sheds subclasses such as numpy.float64
    if isinstance(value, list | tuple):
        return [_encode(v, f"{path}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, Mapping):
        return {_text(k, path): _encode(v, f"{path}.{k}") for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _encode(getattr(value, f.name), f"{path}.{f.name}") for f in dataclasses.fields(value)}
    raise InputError(f"{path} has type {type(value).__name__}, which a record cannot hold")


def _text(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise InputError(f"{path} has a key of type {type(key).__name__}; keys are text")
    return key


@cache
def _decoder(hint: Any) -> Decoder:
    """Decoder of one type, built once."""
    origin = typing.get_origin(hint)
    args = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union(args)
    if origin in (list, tuple):
        return _sequence(origin, args[0])
    if origin is dict:
        return _mapping(args[1])
    if dataclasses.is_dataclass(hint):
        return _record(typing.cast(type, hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enum(hint)
    return _SCALARS[hint]


def _record(cls: type) -> Decoder:
    hints = typing.get_type_hints(cls)
    fields = [(f.name, _decoder(hints[f.name])) for f in dataclasses.fields(cls)]
    known = {name for name, _ in fields}
    required = [f.name for f in dataclasses.fields(cls) if f.default is _MISSING and f.default_factory is _MISSING]

    def decode(value: object, path: str) -> Any:
        plain = _require(value, dict, path, "an object")
        if unknown := plain.keys() - known:
            raise InputError(f"{path} has unknown field {min(unknown, key=str)!r}; known: {', '.join(sorted(known))}")
        if missing := [name for name in required if name not in plain]:
            raise InputError(f"{path} lacks field {missing[0]!r}")
        values = {name: take(plain[name], f"{path}.{name}") for name, take in fields if name in plain}
        try:
            return cls(**values)
        except ValueError as error:  # an invariant of the record itself
            raise InputError(f"{path}: {error}") from None

    return decode


def _sequence(kind: type, item: Any) -> Decoder:
    take = _decoder(item)

    def decode(value: object, path: str) -> Any:
        return kind(take(v, f"{path}[{i}]") for i, v in enumerate(_require(value, list, path, "a list")))

    return decode


def _mapping(item: Any) -> Decoder:
    take = _decoder(item)

    def decode(value: object, path: str) -> Any:
        plain = _require(value, dict, path, "an object")
        return {k: take(v, f"{path}.{k}") for k, v in plain.items()}

    return decode


def _enum(cls: type[enum.Enum]) -> Decoder:
    def decode(value: object, path: str) -> Any:
        try:
            return cls(value)
        except ValueError:
            choices = ", ".join(str(m.value) for m in cls)
            raise InputError(f"{path} is {value!r}; expected one of {choices}") from None

    return decode


def _union(members: tuple[Any, ...]) -> Decoder:
    """First member whose type fits; exact scalar types first, so that 1, 1.0 and True keep apart."""
    kinds = [m for m in members if m in (bool, int, float, str)]
    optional = type(None) in members
    others = [_decoder(m) for m in members if m is not type(None) and m not in kinds]

    def decode(value: object, path: str) -> Any:
        if value is None and optional:
            return None
        if type(value) in kinds:
            return _SCALARS[type(value)](value, path)
        if float in kinds and type(value) is int:
            return float(value)
        for take in others:
            return take(value, path)
        raise InputError(f"{path} is {_show(value)}; expected {' or '.join(m.__name__ for m in members)}")

    return decode


def _scalar(kind: type, name: str) -> Decoder:
    def decode(value: object, path: str) -> Any:
        if type(value) is not kind:
            raise InputError(f"{path} is {_show(value)}; expected {name}")
        return value

    return decode


def _float(value: object, path: str) -> float:
    if type(value) is not float and type(value) is not int:
        raise InputError(f"{path} is {_show(value)}; expected a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{path} is {_show(value)}; expected a finite number")
    return number


def _require(value: object, kind: type, path: str, name: str) -> Any:
    if not isinstance(value, kind):
        raise InputError(f"{path} is {_show(value)}; expected {name}")
    return value


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_SCALARS: dict[Any, Decoder] = {
    bool: _scalar(bool, "true or false"),
    int: _scalar(int, "an integer"),
    str: _scalar(str, "text"),
    float: _float,
}
