"""Tile sizes: how a head size is cut, which tiles ship, and how many segments fill a device.

Everything here is arithmetic on integers; what ships is a table that can be read, compiled and diffed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Config:
    """Tile sizes and launch options of one kernel.

    ``descriptor``: K and V by tensor descriptors where possible. ``rows_first``: ``backward_kv`` makes its scores as
    (rows, keys) and turns them over, which spares registers.
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    descriptor: bool = False
    rows_first: bool = False

    @property
    def options(self) -> dict[str, int]:
        """Launch options."""
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}

    def as_dict(self) -> dict[str, int | bool]:
        """Plain values for files."""
        return asdict(self)


def power_of_two(n: int) -> int:
    """Smallest power of two that is at least ``n`` (1 for n < 1)."""
    return 1 << max(0, n - 1).bit_length()


def halves(head_dim: int) -> tuple[int, int]:
    """``head_dim`` as a power of two and another of at least 16, or 0: (64, 0), (64, 16) for 80, (128, 64) for 192.

    Where the two cannot be exact the sum is larger, and the tail is masked; one power of two is taken where
    two would be no smaller.
    """
    whole = max(16, power_of_two(head_dim))
    first = whole // 2
    if head_dim == whole or first < 16:
        return whole, 0
    second = max(16, power_of_two(head_dim - first))
    return (whole, 0) if first + second >= whole else (first, second)


#: Head sizes the tables below are written for; another takes the next larger one's row.
CLASSES = (64, 80, 96, 128, 160, 192, 256)

# The largest tiles, in the order we would try them, at which ptxas spills nothing: (block_m, block_n, num_warps,
# num_stages). ``plain`` is dense K/V with at most a causal mask, ``rich`` all else, which needs more registers.
# What a table costs in speed only a GPU can tell; that nothing spills is checked without one.
_PLAIN = {
    80: {
        64: (128, 64, 4, 3),
        80: (128, 64, 8, 2),
        96: (128, 64, 8, 2),
        128: (128, 64, 8, 2),
        160: (64, 32, 8, 2),
        192: (128, 16, 8, 2),
        256: (64, 32, 8, 2),
    },
    90: {
        64: (128, 128, 8, 2),
        80: (128, 128, 8, 2),
        96: (128, 128, 8, 2),
        128: (128, 128, 8, 2),
        160: (128, 64, 8, 2),
        192: (128, 64, 8, 2),
        256: (128, 64, 8, 2),
    },
}
# Two parts of a head without a causal mask keep more in registers there.
_PLAIN[100] = {**_PLAIN[90], 80: (128, 64, 8, 2), 96: (128, 64, 8, 2)}
_RICH = {
    80: {
        64: (128, 64, 8, 3),
        80: (128, 32, 8, 2),
        96: (128, 32, 8, 2),
        128: (64, 64, 8, 2),
        160: (128, 16, 8, 2),
        192: (64, 16, 8, 2),
        256: (64, 32, 8, 2),
    },
    90: {
        64: (128, 128, 8, 2),
        80: (128, 64, 8, 2),
        96: (128, 64, 8, 2),
        128: (128, 64, 8, 2),
        160: (128, 32, 8, 2),
        192: (128, 32, 8, 2),
        256: (64, 32, 8, 2),
    },
    100: {
        64: (128, 128, 8, 2),
        80: (128, 64, 8, 2),
        96: (128, 64, 8, 2),
        128: (64, 64, 8, 2),
        160: (128, 32, 8, 2),
        192: (128, 32, 8, 2),
        256: (64, 32, 8, 2),
    },
}
_BACKWARD_KV = {
    80: {
        64: (32, 128, 8, 2),
        80: (32, 64, 8, 2),
        96: (32, 64, 8, 2),
        128: (64, 64, 8, 2),
        160: (16, 64, 8, 2),
        192: (32, 32, 8, 2),
        256: (32, 32, 8, 2),
    },
    90: {
        64: (64, 128, 8, 2),
        80: (64, 64, 8, 2),
        96: (64, 64, 8, 2),
        128: (32, 128, 8, 2),
        160: (32, 64, 8, 2),
        192: (16, 64, 8, 2),
        256: (32, 64, 8, 2),
    },
    100: {
        64: (64, 64, 8, 2),
        80: (64, 64, 8, 2),
        96: (64, 64, 8, 2),
        128: (64, 64, 8, 2),
        160: (32, 64, 8, 2),
        192: (16, 64, 8, 2),
        256: (32, 64, 8, 2),
    },
}
_BACKWARD_Q = {
    80: {
        64: (64, 64, 8, 2),
        80: (64, 32, 8, 2),
        96: (64, 32, 8, 2),
        128: (64, 64, 8, 2),
        160: (64, 32, 8, 2),
        192: (32, 32, 8, 2),
        256: (32, 32, 8, 2),
    },
    90: {
        64: (128, 64, 8, 2),
        80: (64, 64, 8, 2),
        96: (64, 64, 8, 2),
        128: (128, 64, 8, 2),
        160: (64, 32, 8, 2),
        192: (64, 32, 8, 2),
        256: (64, 32, 8, 2),
    },
    100: {
        64: (128, 64, 8, 2),
        80: (64, 64, 8, 2),
        96: (64, 64, 8, 2),
        128: (128, 64, 8, 2),
        160: (64, 32, 8, 2),
        192: (64, 32, 8, 2),
        256: (64, 32, 8, 2),
    },
}


def table_of(arch: int) -> int:
    """Which table an architecture uses: 80, 90 or 100; 0 where a block has 99 KB of shared memory (8.6, 8.9, 12.x)."""
    if arch in (80, 87):
        return 80
    if 90 <= arch < 100:
        return 90
    return 100 if 100 <= arch < 120 else 0


def _row(table: dict[int, tuple[int, int, int, int]], head_dim: int) -> tuple[int, int, int, int]:
    return table[next((c for c in CLASSES if head_dim <= c), CLASSES[-1])]


def forward_config(arch: int, head_dim: int, rows: int, plain: bool = True, group: int = 1) -> Config:
    """Tiles of the forward kernel. ``head_dim`` is the larger of those of K and V; ``rows``: queries x ``group``.

    ``plain``: dense K and V under at most a causal mask. Few rows (decode) want a small tile and deep pipelining: such
    a launch is bound by memory.
    """
    table = table_of(arch)
    if rows <= 64:
        block_m = max(16, power_of_two(rows))
        if not table:
            return Config(block_m, 32, 4, 2)
        if head_dim <= 128:
            # Pages want a stage more: the block table is read ahead of the keys.
            stages = 3 if head_dim <= 64 or not plain else 2
            return Config(block_m, 64 if block_m < 64 or table != 80 else 32, 4, stages)
        if block_m == 64:
            return Config(64, 64 if table != 80 else 32, 8, 2)
        return Config(block_m, 32, 4, 2 if plain or head_dim > 192 else 3)
    if not table:
        return Config(64, 64, 4, 2) if head_dim <= 64 else Config(64, 32, 4 if head_dim <= 128 else 8, 2)
    # Packed rows cost registers for their addresses, which these cannot spare.
    tight = group > 1 and (table == 80 or (table == 90 and head_dim > 192))
    return Config(*_row((_PLAIN if plain and not tight else _RICH)[table], head_dim), descriptor=table >= 90)


def backward_config(arch: int, head_dim: int, kernel: str) -> Config:
    """Tiles of ``backward_kv`` (a program owns BLOCK_N keys) and ``backward_q`` (a program owns BLOCK_M rows)."""
    table = table_of(arch)
    if not table:
        return Config(32, 32, 8 if head_dim > 128 else 4, 2)
    if kernel == "backward_kv":
        # K and V of 256 numbers would stay in registers beside both sums: sm_90 has not that many.
        return Config(*_row(_BACKWARD_KV[table], head_dim), rows_first=table == 90 and head_dim > 192)
    return Config(*_row(_BACKWARD_Q[table], head_dim))


def segments(programs: int, key_tiles: int, sms: int, per_sm: int = 2, least_tiles: int = 2) -> int:
    """Into how many segments to cut the keys so that ``programs`` x segments fill the device.

    ``per_sm`` programs share a multiprocessor. No segment is shorter than ``least_tiles`` tiles (a shorter one costs
    more in merging than it wins). Among the numbers whose last wave is filled nearly as well as the best one's,
    the smallest is taken.
    """
    slots = max(1, sms * per_sm)
    most = min(128, key_tiles // max(1, least_tiles))
    if programs < 1 or most <= 1 or programs >= 0.8 * slots:
        return 1

    def filled(count: int) -> float:
        waves = programs * count / slots
        return waves / -(-programs * count // slots)

    best = max(filled(count) for count in range(1, most + 1))
    return next(count for count in range(1, most + 1) if filled(count) >= 0.9 * best)


def band(kv_len: int, bytes_per_key: int, heads: int, l2: int) -> int:
    """How many K/V heads are worked on at a time, so that their K and V stay in half of the L2."""
    return max(1, min(heads, (l2 // 2) // max(1, kv_len * bytes_per_key)))
