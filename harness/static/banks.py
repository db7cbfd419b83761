"""Bank conflicts of matrix loads, derived from the layouts of shared memory that the compiler chose.

A matrix load reads eight rows of 16 bytes at a time. Shared memory has 32 banks of 4 bytes, so that such rows pass at
once where each lies in another eighth of the 128 bytes that the banks span; two in the same eighth take two turns.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

_SPAN, _CHUNK, _ROWS = 128, 16, 8

_ALIAS = re.compile(r"^#(\w+) = #ttg\.(swizzled_shared|nvmma_shared)<\{([^}]*)\}>", re.MULTILINE)
_TYPE = re.compile(r"!ttg\.memdesc<((?:\d+x)+)([a-z]+\d+\w*), #(\w+), #smem")
_FIELD = re.compile(r"(\w+) = (\[[\d, ]*\]|\w+)")
_BITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Swizzle:
    """How chunks of 16 bytes lie: row r begins at ``stride`` x r bytes, and its chunk c stands in the place of
    ``c ^ (r // per_phase % max_phase)``."""

    stride: int
    per_phase: int
    max_phase: int

    def ways(self, rows: int = _ROWS) -> int:
        """Most rows of one matrix load that share banks; 1 is no conflict."""
        worst = 1
        for chunk in range(max(1, self.stride // _CHUNK)):
            for first in range(0, max(_ROWS, rows), _ROWS):
                lanes = range(first, first + min(rows, _ROWS))
                places = [
                    (r * self.stride + (chunk ^ (r // self.per_phase % self.max_phase)) * _CHUNK) % _SPAN for r in lanes
                ]
                worst = max(worst, *Counter(places).values())
        return worst


def ways(text: str) -> int | None:
    """The worst of all shared tiles in a kernel's ``ttgir``; None where no tile has a layout that is understood."""
    layouts = {name: (kind, dict(_FIELD.findall(fields))) for name, kind, fields in _ALIAS.findall(text)}
    found = []
    for shape, element, name in set(_TYPE.findall(text)):
        sizes = [int(n) for n in shape.rstrip("x").split("x")]
        if name in layouts and (tile := _swizzle(sizes, element, *layouts[name])) is not None:
            found.append(tile[0].ways(tile[1]))
    return max(found, default=None)


def _swizzle(sizes: list[int], element: str, kind: str, fields: dict[str, str]) -> tuple[Swizzle, int] | None:
    """The swizzle of a tile and its number of rows."""
    bits = _BITS.search(element)
    if len(sizes) < 2 or bits is None:
        return None
    size = int(bits.group()) // 8
    if kind == "nvmma_shared":
        # Rows of a block are as wide as the pattern, and the pattern moves on after each 128 bytes.
        width = int(fields["swizzlingByteWidth"])
        rows = sizes[-1] if fields.get("transposed") == "true" else sizes[-2]
        return (Swizzle(width, _SPAN // width, width // _CHUNK), rows) if width >= 2 * _CHUNK else None
    inner = int(fields["order"].strip("[]").split(",")[0]) - (len(fields["order"].split(",")) - 2)
    if len(fields["order"].split(",")) < 2 or int(fields["vec"]) * size != _CHUNK:
        return None
    row, column = (sizes[-2], sizes[-1]) if inner == 1 else (sizes[-1], sizes[-2])
    return Swizzle(column * size, int(fields["perPhase"]), int(fields["maxPhase"])), row
