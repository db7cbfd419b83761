"""Parameters of others as ours: texts that Python printed become scalars, names become identifiers.

Nothing is evaluated: only literals are parsed, and only short and shallow ones.
"""

from __future__ import annotations

import ast
import hashlib
import keyword
import math
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from harness.model import Scalar
from harness.model.params import RESERVED

#: Longer texts are kept as they are, and shortened where even that is too much for a screen.
_PARSED, _KEPT, _NESTED = 2000, 400, 40

_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
_CLASS = re.compile(r"<(?:class|type) '([^']+)'>")
_NUMPY = re.compile(r"(?:np|numpy)\.(?:u?int\d*|float\d*|bool_?|str_|longlong|intc)\((.{1,200})\)", re.DOTALL)
#: Names that expressions over parameters give a meaning of their own, and columns that every case has.
_TAKEN = RESERVED | {"log2", "ceil", "col"}


@lru_cache(maxsize=1 << 15)
def scalar_of(text: str) -> Scalar:
    """What a printed value means: ``'1'`` -> 1, ``"'a'"`` -> a, ``"<class 'int'>"`` -> int, ``[1, 2]`` stays text."""
    text = _ADDRESS.sub("", text) if " at 0x" in text else text
    if (found := _CLASS.fullmatch(text)) is not None:
        return found[1]
    if (found := _NUMPY.fullmatch(text)) is not None:
        return scalar_of(found[1])
    if len(text) > _PARSED or sum(map(text.count, "([{-+~")) > _NESTED:
        return _short(text)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return _short(text)
    return plain(value)


def plain(value: object) -> Scalar:
    """A value as a scalar that a parameter can have; lists and the like become text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else _short(hex(value))
    if isinstance(value, float) and math.isfinite(value):
        return value
    try:
        return _short(repr(value))
    except (ValueError, RecursionError):
        return "?"


def counted(texts: Iterable[str]) -> list[str]:
    """Printed values of one parameter, repeated ones told apart as asv does: ``x (0)``, ``x (1)``."""
    values = list(texts)
    if len(set(values)) == len(values):
        return values
    seen: dict[str, int] = {}
    out = []
    for text in values:
        number = seen[text] = seen.get(text, -1) + 1
        out.append(f"{text} ({number})" if values.count(text) > 1 else text)
    return out


def identifier(name: str) -> str:
    """The name as an identifier that no case has already: ``kv len`` -> ``kv_len``."""
    if name.isidentifier() and name.isascii() and not keyword.iskeyword(name) and name not in _TAKEN:
        return name[:200]
    text = re.sub(r"\W+", "_", unicodedata.normalize("NFKC", name[:200])).strip("_") or "param"
    if not text.isidentifier():
        text = "_" + text
    if not text.isidentifier():
        text = "param"
    return text + "_" if keyword.iskeyword(text) or text in _TAKEN else text


def identifiers(names: Iterable[str]) -> list[str]:
    """The names as identifiers that differ."""
    out: list[str] = []
    for name in names:
        text, number = identifier(name), 2
        while text in out:
            text = f"{identifier(name)}_{number}"
            number += 1
        out.append(text)
    return out


def _short(text: str) -> str:
    if len(text) <= _KEPT:
        return text
    return f"{text[: _KEPT - 20]}...{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
