"""Counts of machine instructions by kind, from the text of the disassembler and of the assembler's report."""

from __future__ import annotations

import re
from collections import Counter

# "        /*0a30*/  @!P0 LDG.E.128.CONSTANT R4, desc[UR8][R2.64] ;"
_LINE = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[\dT]+\s+)?([A-Z][A-Z0-9]*(?:\.[A-Za-z0-9_]+)*)[\s;]", re.MULTILINE
)
_REPORT = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
)
_REGISTERS = re.compile(r"Used (?P<registers>\d+) registers")

#: Matrix instructions: of a warp group (sm_90), of the tensor core's own memory (sm_100), of a warp.
MATRIX = {
    "HGMMA": "hgmma", "QGMMA": "qgmma", "IGMMA": "igmma",
    "UTCHMMA": "utchmma", "UTCQMMA": "utcqmma", "UTCIMMA": "utcimma", "UTCOMMA": "utcomma",
    "HMMA": "hmma", "QMMA": "qmma", "IMMA": "imma", "DMMA": "dmma",
}  # fmt: skip
#: Loads and stores whose width is counted.
_WIDE = {"LDG", "STG", "LDS", "STS", "LDL", "STL", "LDGSTS"}
_OTHER = {
    "LDSM": "ldsm", "STSM": "stsm", "UTMALDG": "utmaldg", "UTMASTG": "utmastg", "UBLKCP": "ublkcp",
    "ATOM": "atom", "ATOMG": "atom", "RED": "red", "BAR": "bar", "MUFU": "mufu", "SHFL": "shfl", "LDTM": "ldtm",
    "STTM": "sttm", "WARPSYNC": "warpsync",
}  # fmt: skip


def count(text: str) -> dict[str, int]:
    """Instructions by kind: ``hgmma``, ``ldg_128``, ``ldgsts_128``, ``lds_32``, ``ldl_64`` ..., and ``total``.

    ``text`` is what ``nvdisasm`` or ``cuobjdump -sass`` prints. Widths are bits per thread.
    """
    found: Counter[str] = Counter()
    for match in _LINE.finditer(text):
        opcode, *modifiers = match.group(1).split(".")
        found["total"] += 1
        if opcode in MATRIX:
            found[MATRIX[opcode]] += 1
        elif opcode in _WIDE:
            found[f"{opcode.lower()}_{_width(modifiers)}"] += 1
        elif opcode in _OTHER:
            found[_OTHER[opcode]] += 1
    return dict(sorted(found.items()))


def _width(modifiers: list[str]) -> int:
    for modifier in modifiers:
        if modifier in ("64", "128", "256"):
            return int(modifier)
        if modifier in ("U8", "S8", "U16", "S16"):
            return int(modifier[1:])
    return 32


def report(text: str) -> dict[str, int]:
    """``registers``, ``stack_bytes`` and ``spill_bytes`` of a ``ptxas -v`` report; ``ValueError`` without.""" ""
    frames, registers = _REPORT.findall(text), _REGISTERS.findall(text)
    if not frames or not registers:
        raise ValueError(f"ptxas reported no resources: {text[:200]!r}")
    return {
        "registers": max(map(int, registers)),
        "stack_bytes": max(int(f[0]) for f in frames),
        "spill_bytes": sum(int(f[1]) + int(f[2]) for f in frames),
    }
