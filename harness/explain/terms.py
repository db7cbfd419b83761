"""One term of a trigger: a feature of one to four columns, compared with a value."""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_OPS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "in": lambda a, b: a in b,
}

#: Names that mean something else in the expression language.
_TAKEN = frozenset({"col", "log2", "ceil", "floor", "abs", "min", "max"})


@dataclass(frozen=True)
class Term:
    """``kind`` says what is computed of ``columns``:

    ======== ===================================== ==========================
    column   the value itself                      ``==`` ``!=`` ``<`` .. ``in``
    residue  ``a % number``                        ``==`` ``!=``
    power    ``log2(a - number) % 1``              ``==`` ``!=`` 0
    product  ``a * b``, of two to four columns     thresholds, ``==``
    ratio    ``a / b``                             thresholds, ``==``, ``!=``
    rest     ``a % b``                             ``==`` ``!=``
    ceil     ``ceil(a / b)``                       thresholds, ``==``
    compare  ``a``                                 another column
    ======== ===================================== ==========================

    ``maybe_none`` are the columns in which a cell may be missing; the text then guards itself.
    """

    kind: str
    columns: tuple[str, ...]
    op: str
    value: Any
    number: int = 0
    boolean: bool = False
    maybe_none: frozenset[str] = frozenset()

    @property
    def feature(self) -> str:
        """What is compared, as an expression without guards."""
        names = [reference(c) for c in self.columns]
        match self.kind:
            case "residue":
                return f"{names[0]} % {self.number}"
            case "power":
                return f"log2({_shifted(names[0], self.number)}) % 1"
            case "product":
                return " * ".join(names)
            case "ratio":
                return f"{names[0]} / {names[1]}"
            case "rest":
                return f"{names[0]} % {names[1]}"
            case "ceil":
                return f"ceil({names[0]} / {names[1]})"
        return names[0]

    def record(self) -> dict[str, Any]:
        """``feature``, ``op`` and ``value`` for JSON; a compared column is given by its reference."""
        value = reference(self.columns[1]) if self.kind == "compare" else self.value
        return {"feature": self.feature, "op": self.op, "value": list(value) if self.op == "in" else value}

    def guards(self) -> list[str]:
        """Conditions that must hold before the feature may be computed."""
        out: list[str] = []
        needs_number = self.kind != "column" or self.op in ("<", "<=", ">", ">=")
        if self.kind == "compare" and self.op in ("==", "!="):
            needs_number = False
        for c in self.columns:
            if needs_number and c in self.maybe_none:
                out.append(f"{reference(c)} != None")
        if self.kind in ("rest", "ceil"):
            out.append(f"{reference(self.columns[1])} != 0")
        if self.kind == "power":
            out.append(f"{reference(self.columns[0])} > {self.number}")
        return out

    def test(self) -> str:
        """The comparison without its guards."""
        names = [reference(c) for c in self.columns]
        if self.kind == "compare":
            return f"{names[0]} {self.op} {names[1]}"
        if self.kind == "ratio":
            # Multiplied out: no division by zero, and no rounding of the quotient.
            right = names[1] if self.value == 1 else f"{literal(self.value)} * {names[1]}"
            return f"{names[0]} {self.op} {right}"
        if self.boolean and self.op == "==" and not self.maybe_none:
            return names[0] if self.value else f"not {names[0]}"
        if self.op == "in":
            return f"{self.feature} in ({', '.join(literal(v) for v in self.value)})"
        return f"{self.feature} {self.op} {literal(self.value, self.kind != 'column' or self.op != '==')}"

    @property
    def text(self) -> str:
        """The term as an expression that never raises."""
        return " and ".join([*self.guards(), self.test()])

    def holds(self, row: Mapping[str, Any]) -> bool:
        """The truth on one row; False where a cell that is computed with is missing or no number."""
        cells = [row.get(c) for c in self.columns]
        compare = _OPS[self.op]
        try:
            match self.kind:
                case "column":
                    return bool(compare(cells[0], self.value))
                case "compare":
                    return bool(compare(cells[0], cells[1]))
            a: Any = cells[0]
            b: Any = cells[-1]
            if any(not isinstance(x, int | float) for x in cells):
                return False
            match self.kind:
                case "residue":
                    return bool(compare(a % self.number, self.value))
                case "power":
                    return a > self.number and bool(compare(math.log2(a - self.number) % 1, self.value))
                case "product":
                    return bool(compare(math.prod(x for x in cells if x is not None), self.value))
                case "ratio":
                    return bool(compare(a, self.value * b))
                case "rest":
                    return b != 0 and bool(compare(a % b, self.value))
            return b != 0 and bool(compare(math.ceil(a / b), self.value))
        except (TypeError, ValueError, ArithmeticError):
            return False


def reference(name: str) -> str:
    """How a column is written: by name, or ``col['kv len']`` where the name is no usable identifier."""
    if name.isidentifier() and name.isascii() and not keyword.iskeyword(name) and name not in _TAKEN:
        return name
    return f"col[{name!r}]"


def literal(value: Any, powers: bool = True) -> str:
    """A constant as Python reads it back: text quoted, large powers of two as ``2**31``."""
    if isinstance(value, float) and not isinstance(value, bool):
        if math.isinf(value):
            return "1e999" if value > 0 else "-1e999"
        if value == math.floor(value) and abs(value) < 1e15:
            value = int(value)
    if (
        powers
        and isinstance(value, int)
        and not isinstance(value, bool)
        and value >= 2**17
        and value & (value - 1) == 0
    ):
        return f"2**{value.bit_length() - 1}"
    return repr(value)


def join(terms: tuple[Term, ...]) -> str:
    """A conjunction as one expression; guards are said once. No terms: ``True``."""
    parts: list[str] = []
    for term in terms:
        for part in (*term.guards(), term.test()):
            if part not in parts:
                parts.append(part)
    return " and ".join(parts) if parts else "True"


def _shifted(name: str, offset: int) -> str:
    if offset == 0:
        return name
    return f"{name} - {offset}" if offset > 0 else f"{name} + {-offset}"
