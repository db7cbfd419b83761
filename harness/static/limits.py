"""What a multiprocessor of each architecture holds, and how many blocks of a kernel fit.

Figures are those of the vendor's table of technical specifications per compute capability.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Registers are handed out to warps in units of this many, evenly over this many partitions.
_REGISTER_UNIT, _PARTITIONS = 256, 4

#: Shared memory is handed out in units, and the system keeps some of it for each block.
_SHARED_UNIT, _SHARED_RESERVED = 128, 1024


@dataclass(frozen=True)
class Limits:
    """Per multiprocessor: warps, blocks, 32-bit registers, bytes of shared memory, columns of tensor memory.

    ``block_shared`` is the most that one block may ask for.
    """

    warps: int
    blocks: int
    shared: int
    block_shared: int
    registers: int = 65536
    tensor_columns: int = 0


LIMITS: dict[str, Limits] = {
    "sm_80": Limits(64, 32, 164 << 10, 163 << 10),
    "sm_86": Limits(48, 16, 100 << 10, 99 << 10),
    "sm_89": Limits(48, 24, 100 << 10, 99 << 10),
    "sm_90": Limits(64, 32, 228 << 10, 227 << 10),
    "sm_100": Limits(64, 32, 228 << 10, 227 << 10, tensor_columns=512),
    "sm_120": Limits(48, 24, 100 << 10, 99 << 10),
}


def occupancy(target: str, warps: int, registers: int, shared: int, tensor_columns: int = 0) -> tuple[int, float, str]:
    """(blocks per multiprocessor, share of its warps, what sets the limit) of a kernel.

    Args:
        target: "sm_90"; ``KeyError`` names the known ones.
        warps: per block. registers: per thread. shared: bytes per block. tensor_columns: per block.
    """
    if target not in LIMITS:
        raise KeyError(f"no limits known for {target}; known: {', '.join(LIMITS)}")
    limits = LIMITS[target]
    per_warp = _up(max(1, registers) * 32, _REGISTER_UNIT)
    by = {
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
        "registers": limits.registers // _PARTITIONS // per_warp * _PARTITIONS // warps,
        "shared memory": limits.shared // _up(shared + _SHARED_RESERVED, _SHARED_UNIT),
    }
    if shared > limits.block_shared:
        by["shared memory"] = 0
    if tensor_columns:
        by["tensor memory"] = limits.tensor_columns // tensor_columns
    limit = min(by, key=lambda name: by[name])
    return by[limit], by[limit] * warps / limits.warps, limit


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit
