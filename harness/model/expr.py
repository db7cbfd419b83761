"""The expression language of ``--where`` and of trigger texts: a small, safe subset of Python.

Columns by name (``kv_len``) or, where the name is no identifier, ``col['kv len']``; numbers, quoted strings,
True, False, None; ``and or not``, comparisons (chained too), ``in`` with a tuple or list; ``+ - * / // % **``;
``log2 ceil floor abs min max``. Nothing else parses. On a row where the expression does not apply (a missing
column, None, text against a number, division by zero, whole numbers past 4096 bits) it is False; it never raises.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .terms import InputError

Row = Mapping[str, Any]
_Fn = Callable[[Row], Any]

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "log2": math.log2, "ceil": math.ceil, "floor": math.floor, "abs": abs, "min": min, "max": max,
}  # fmt: skip

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip

_MAX_TEXT = 20_000
_MAX_DEPTH = 100
#: Largest whole number that arithmetic gives; without a bound a short text could multiply for minutes.
_MAX_BITS = 4096


class _NotApplicable(Exception):
    """The expression has no value on this row."""


@dataclass(frozen=True)
class Expression:
    """A compiled expression. Call it with a row; ``names`` are the columns it reads."""

    text: str
    names: frozenset[str]
    _fn: _Fn

    def __call__(self, row: Row) -> bool:
        try:
            return bool(self._fn(row))
        except (_NotApplicable, TypeError, ValueError, ArithmeticError):
            return False

    def check_names(self, known: Iterable[str], where: str = "--where") -> None:
        """Raise InputError for a column that does not exist, with the nearest ones that do."""
        known = sorted(set(known))
        for name in sorted(self.names - set(known)):
            near = difflib.get_close_matches(name, known, n=3) or known
            raise InputError(f"{where}: no column {name!r} in {self.text!r}; did you mean {', '.join(near)}?")


def compile_expr(text: str, where: str = "--where") -> Expression:
    """Compile ``text``; InputError with the place of the fault where it is outside the language."""
    if len(text) > _MAX_TEXT:
        raise InputError(f"{where}: expression of {len(text)} characters; at most {_MAX_TEXT} are taken")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
        place = f" at column {err.offset}" if isinstance(err, SyntaxError) and err.offset else ""
        raise InputError(f"{where}: cannot read {text!r}{place}: {getattr(err, 'msg', err)}") from None
    names: set[str] = set()
    fn = _Compiler(text, where, names).build(tree.body, 0)
    return Expression(text, frozenset(names), fn)


class _Compiler:
    def __init__(self, text: str, where: str, names: set[str]) -> None:
        self.text, self.where, self.names = text, where, names

    def fail(self, node: ast.AST, why: str) -> InputError:
        column = getattr(node, "col_offset", 0) + 1
        return InputError(f"{self.where}: {why} at column {column} of {self.text!r}")

    def build(self, node: ast.expr, depth: int) -> _Fn:
        if depth > _MAX_DEPTH:
            raise self.fail(node, f"nested more than {_MAX_DEPTH} deep")
        nxt = depth + 1
        match node:
            case ast.Constant(value=value) if value is None or isinstance(value, bool | int | float | str):
                return lambda row: value
            case ast.Name(id=name):
                return self.column(name)
            case ast.Subscript(value=ast.Name(id="col"), slice=ast.Constant(value=str(name))):
                return self.column(name)
            case ast.Tuple(elts=elts) | ast.List(elts=elts) | ast.Set(elts=elts):
                items = [self.build(e, nxt) for e in elts]
                return lambda row: tuple(f(row) for f in items)
            case ast.BoolOp(op=op, values=values):
                parts = [self.build(v, nxt) for v in values]
                return _join(parts, stop_at=not isinstance(op, ast.And))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.build(operand, nxt)
                return lambda row: not inner(row)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.build(operand, nxt)
                return lambda row: -_number(inner(row))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                inner = self.build(operand, nxt)
                return lambda row: +_number(inner(row))
            case ast.BinOp(left=left, op=op2, right=right) if type(op2) in _BINARY:
                return _binary(type(op2), self.build(left, nxt), self.build(right, nxt))
            case ast.Compare(left=left, ops=ops, comparators=rest) if all(type(o) in _COMPARE for o in ops):
                fns = [self.build(x, nxt) for x in (left, *rest)]
                tests = [_COMPARE[type(o)] for o in ops]
                return lambda row: _chain(row, fns, tests)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS and args:
                call, fargs = FUNCTIONS[name], [self.build(a, nxt) for a in args]
                return lambda row: call(*(_number(f(row)) for f in fargs))
        raise self.fail(node, "not part of the expression language (columns, numbers, quoted text, and/or/not, "
                              "comparisons, in, + - * / // % **, log2, ceil)")  # fmt: skip

    def column(self, name: str) -> _Fn:
        self.names.add(name)

        def read(row: Row) -> Any:
            try:
                return row[name]
            except KeyError:
                raise _NotApplicable from None

        return read


def _number(value: Any) -> Any:
    # Text in arithmetic would format ('%') or repeat ('*') without bound.
    if not isinstance(value, int | float):
        raise _NotApplicable
    return value


def _join(parts: list[_Fn], *, stop_at: bool) -> _Fn:
    def join(row: Row) -> Any:
        # As in Python, the value of the operand that decides, not only its truth.
        for fn in parts[:-1]:
            value = fn(row)
            if bool(value) == stop_at:
                return value
        return parts[-1](row)

    return join


def _binary(kind: type[ast.operator], left: _Fn, right: _Fn) -> _Fn:
    fn = _BINARY[kind]
    if kind is ast.Pow:

        def power(row: Row) -> Any:
            a, b = _number(left(row)), _number(right(row))
            if abs(b) > 1024 or abs(a) > 1e300:
                raise _NotApplicable
            if isinstance(a, int) and isinstance(b, int) and (a.bit_length() - 1) * b >= _MAX_BITS:
                raise _NotApplicable
            return _bounded(fn(a, b))

        return power
    return lambda row: _bounded(fn(_number(left(row)), _number(right(row))))


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise _NotApplicable
    return value


def _chain(row: Row, fns: list[_Fn], tests: list[Callable[[Any, Any], bool]]) -> bool:
    left = fns[0](row)
    for test, fn in zip(tests, fns[1:], strict=True):
        right = fn(row)
        if not test(left, right):
            return False
        left = right
    return True
