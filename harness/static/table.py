"""Records as lines of text."""

from __future__ import annotations

from .records import StaticRecord

_TOP = ("hgmma", "qgmma", "utchmma", "utcqmma", "hmma")
_LOADS = ("utmaldg", "ldgsts_128", "ldg_128", "ldgsts_64", "ldg_64", "ldg_32", "ldl_32", "ldl_64", "ldl_128")


def line(r: StaticRecord) -> str:
    """One line: problem, target, tile, resources, occupancy, matrix instructions, loads."""
    if r.error:
        return f"{r.configuration:<58} {r.target:<6} ERROR {r.error[-120:]}"
    tile = f"{r.options['block_m']}x{r.options['block_n']}" if "block_n" in r.options else "-"
    shape = f"{tile} w{r.options.get('num_warps', '-')} s{r.options.get('num_stages', '-')}"
    matrix = " ".join(f"{k}={r.instructions[k]}" for k in _TOP if k in r.instructions) or "-"
    loads = " ".join(f"{k}={r.instructions[k]}" for k in _LOADS if k in r.instructions)
    return (
        f"{r.configuration:<58} {r.target:<6} {shape:<14} regs {r.registers:>3} spill {r.spill_bytes} "
        f"stack {r.stack_bytes} shared {r.shared_bytes:>6} occ {r.occupancy:.0%} ({r.limited_by}) {matrix} | {loads}"
    )
