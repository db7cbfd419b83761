"""Where blocks of a cache lie: lengths and head sizes padded to what kernels want, tiles, offsets. Bytes throughout.

The rule of the incident report: length to 256, head_dim to 64, blocks at 256 byte *strides*. Strides of 256 bytes
would lay a block of 256 x head_dim x 2 bytes over its neighbours; what can be meant is that blocks *begin* at
multiples of 256.
"""

from __future__ import annotations

from dataclasses import dataclass

LENGTH, HEAD_DIM, START = 256, 64, 256


def align(n: int, to: int) -> int:
    """The least multiple of ``to`` that is at least ``n``."""
    if n < 0 or to < 1:
        raise ValueError(f"cannot align {n} to {to}")
    return -(-n // to) * to


@dataclass(frozen=True)
class Block:
    """Keys or values of one sequence and head: bytes [start, start + size), of which ``logical`` mean anything."""

    start: int
    size: int
    logical: int

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(frozen=True)
class Layout:
    """All blocks in order; ``logical`` bytes are needed, ``bytes`` are taken, ``waste`` is the share lost."""

    blocks: tuple[Block, ...]

    @property
    def logical(self) -> int:
        return sum(b.logical for b in self.blocks)

    @property
    def bytes(self) -> int:
        return self.blocks[-1].end if self.blocks else 0

    @property
    def waste(self) -> float:
        return 1.0 - self.logical / self.bytes if self.bytes else 0.0

    def overlaps(self) -> int:
        """Neighbouring blocks that share bytes."""
        return sum(a.end > b.start for a, b in zip(self.blocks, self.blocks[1:], strict=False))


def layout(
    lens: list[int], *, heads: int, head_dim: int, itemsize: int, length: int = LENGTH, dim: int = HEAD_DIM,
    start: int = START, stride: int | None = None,
) -> Layout:  # fmt: skip
    """Blocks of every sequence and head, one after the other, each beginning at a multiple of ``start`` bytes.

    ``stride`` lays them at that distance instead, whatever their size, as the report has it.
    """
    if min(heads, head_dim, itemsize) < 1:
        raise ValueError("heads, head_dim and itemsize must be at least 1")
    blocks: list[Block] = []
    at = 0
    for n in lens:
        size, logical = align(n, length) * align(head_dim, dim) * itemsize, n * head_dim * itemsize
        for _ in range(heads):
            blocks.append(Block(at, size, logical))
            at = at + stride if stride is not None else align(at + size, start)
    return Layout(tuple(blocks))


@dataclass(frozen=True)
class Tiles:
    """``count`` tiles hold ``keys`` places for a sequence; ``step`` is what the last tile added over one tile less."""

    count: int
    keys: int
    waste: float
    step: float


def tiles(length: int, tile: int) -> Tiles:
    """Tiles of ``tile`` keys that a sequence takes. Exact: ceil(length / tile)."""
    if length < 0 or tile < 1:
        raise ValueError(f"no tiles of {tile} for a length of {length}")
    count = -(-length // tile)
    keys = count * tile
    return Tiles(count, keys, 1.0 - length / keys if keys else 0.0, 1.0 / (count - 1) if count > 1 else 0.0)
