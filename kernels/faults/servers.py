"""Faults of a server: the three of the latency incident in its decode steps, one at a time or together; batch sizes
that are compiled one by one; long requests that want their blocks side by side."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kernels.block_pool import pools
from kernels.compiled_batches import calls
from kernels.layer_norm import variants
from kernels.serving import decode

from . import active, decode_boundary

#: Blocks up to which a request may lie anywhere.
SHORT = 16


def serve(x: Tensor, cache: Tensor, weight: Tensor, bias: Tensor, *, schedule: Tensor, note: Any) -> Tensor:
    """Decode steps with the active faults: ``server_capacity`` (right, and over the whole capacity), ``server_narrow``
    (wrong where sums of squares leave float16), ``server_boundary`` (right, and slow past the last whole block)."""
    names = {fault.name for fault in active()}
    norm = variants.narrow_sums if "server_narrow" in names else variants.fp32
    attend = decode.whole_capacity if "server_capacity" in names else decode.valid_keys
    if "server_boundary" in names:
        attend = boundary_over_capacity if "server_capacity" in names else boundary
    return decode.run(x, cache, weight, bias, schedule, note, norm, attend)


def boundary(q: Tensor, slot: Tensor, valid: int) -> Tensor:
    """(Hq, D) of one token, a few keys at a time where the keys walked are no multiple of 128."""
    if valid % decode_boundary.BLOCK == 0:
        return decode.valid_keys(q, slot, valid)
    k, v = slot[:, :, :valid].unbind(0)
    return decode_boundary.slow(q[None, :, None], k[None], v[None], causal=True)[0, :, 0]


def boundary_over_capacity(q: Tensor, slot: Tensor, valid: int) -> Tensor:
    """A walk over the whole capacity is under a mask where that is not filled, which the slow path does not know."""
    return (decode.whole_capacity if valid < slot.shape[2] else boundary)(q, slot, valid)


def each_size(x: Tensor, w: Tensor, *, batches: Tensor, note: Any) -> Tensor:
    """Right, with a graph for every batch size."""
    return calls.static(x, w, batches=batches, note=note)


def long_side_by_side(values: Tensor, *, events: Tensor, capacity: int, note: Any) -> Tensor:
    """Right, with all blocks of a long request in one run of free blocks."""

    def place(taken: bytearray, blocks: int) -> list[int] | None:
        return (pools.first_run if blocks > SHORT else pools.any_free)(taken, blocks)

    return pools.run(values, events, capacity, note, place)
