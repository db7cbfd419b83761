"""Conflicts from layouts: by hand, and by counting the banks of every address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.static.banks import Swizzle, ways

HEAD = """#blocked = #ttg.blocked<{sizePerThread = [1, 8]}>
#shared = #ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>
#shared1 = #ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 1, order = [1, 0]}>
#shared2 = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#shared3 = #ttg.nvmma_shared<{swizzlingByteWidth = 32, transposed = true, elementBitWidth = 16}>
#shared4 = #ttg.swizzled_shared<{vec = 8, perPhase = 4, maxPhase = 2, order = [1, 0]}>
#smem = #ttg.shared_memory
"""


def tile(shape: str, layout: str) -> str:
    return f"{HEAD} %0 = ttg.local_alloc : () -> !ttg.memdesc<{shape}, #{layout}, #smem, mutable>\n"


@pytest.mark.parametrize(
    "shape, layout, expected",
    [
        ("128x64xf16", "shared", 1),
        ("2x64x64xf16", "shared", 1),
        ("128x64xf16", "shared1", 8),  # rows of 128 bytes, not swizzled: all in the same banks
        ("128x32xf16", "shared1", 4),
        ("64x16xf16", "shared4", 1),
        ("64x16xf16", "shared1", 2),
        ("2x1xi64", "shared2", None),  # a barrier
        ("16x128xf16", "shared3", 1),
        ("128x64xf8E4M3FN", "shared", None),  # 8 bytes at a time: no matrix load of 16
    ],
)
def test_layouts_by_hand(shape: str, layout: str, expected: int | None) -> None:
    assert ways(tile(shape, layout)) == expected


def test_the_worst_tile_counts_and_nothing_is_nothing() -> None:
    assert ways(tile("128x64xf16", "shared") + tile("128x64xf16", "shared1")) == 8
    assert ways("") is None
    assert ways("!ttg.memdesc<128x64xf16, #tmem, #ttng.tensor_memory, mutable>") is None


@given(st.sampled_from([32, 64, 128, 256, 512]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]))
def test_ways_are_turns_of_the_banks(stride: int, per_phase: int, max_phase: int) -> None:
    """Every word of every row of a load, put into its bank."""
    if max_phase * 16 > stride:
        return
    worst = 0
    for chunk in range(stride // 16):
        banks: dict[int, set[int]] = {}
        for row in range(8):
            start = row * stride + (chunk ^ (row // per_phase % max_phase)) * 16
            for word in range(start // 4, start // 4 + 4):
                banks.setdefault(word % 32, set()).add(word)
        worst = max(worst, *(len(words) for words in banks.values()))
    assert Swizzle(stride, per_phase, max_phase).ways() == worst
