"""Layout, tiles, saturation and growth: against brute force, real allocations and curves that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.catalogue import bandwidth, banks, growth, kv_layout
from kernels.paged.pool import BlockPool

LENS = st.lists(st.integers(0, 2000), min_size=1, max_size=8)


@given(LENS, st.integers(1, 4), st.integers(1, 200), st.sampled_from([1, 2, 4]), st.sampled_from([1, 64, 256]))
def test_no_two_blocks_overlap_and_every_one_is_aligned(
    lens: list[int], heads: int, head_dim: int, itemsize: int, start: int
) -> None:
    made = kv_layout.layout(lens, heads=heads, head_dim=head_dim, itemsize=itemsize, start=start)
    taken = np.zeros(made.bytes, dtype=np.int8)
    for block in made.blocks:
        assert block.start % start == 0 and block.logical <= block.size
        taken[block.start : block.end] += 1
    assert taken.max(initial=0) <= 1 and made.overlaps() == 0
    assert made.logical == sum(lens) * heads * head_dim * itemsize
    assert 0.0 <= made.waste <= 1.0


def test_strides_of_256_bytes_would_lay_blocks_over_each_other() -> None:
    made = kv_layout.layout([256, 256], heads=4, head_dim=128, itemsize=2, stride=256)
    assert made.overlaps() == 7  # every neighbour
    assert kv_layout.layout([256, 256], heads=4, head_dim=128, itemsize=2).overlaps() == 0


@pytest.mark.parametrize(
    ("length", "head_dim", "waste"),
    [(256, 64, 0.0), (257, 64, 1 - 257 / 512), (256, 80, 0.375), (2049, 128, 1 - 2049 / 2304)],
)
def test_waste_by_hand(length: int, head_dim: int, waste: float) -> None:
    made = kv_layout.layout([length], heads=1, head_dim=head_dim, itemsize=2)
    assert made.waste == pytest.approx(waste)


def test_the_tile_table_is_exact() -> None:
    assert [kv_layout.tiles(n, 64).count for n in (2048, 2049, 32768)] == [32, 33, 512]
    assert kv_layout.tiles(2049, 64).step == pytest.approx(0.03125)
    assert kv_layout.tiles(32768, 64).waste == 0.0 == kv_layout.tiles(2048, 64).waste
    with pytest.raises(ValueError, match="no tiles of 0"):
        kv_layout.tiles(5, 0)


@given(st.integers(0, 5000), st.integers(1, 300))
def test_tiles_hold_the_length_and_no_tile_is_empty(length: int, tile: int) -> None:
    made = kv_layout.tiles(length, tile)
    assert made.keys >= length > made.keys - tile if length else made.count == 0


@pytest.mark.parametrize("length", [1, 63, 64, 65, 2048, 2049])
def test_the_pool_takes_as_many_tiles_as_the_model_says(length: int) -> None:
    pool = BlockPool(40, 64, 2, 8)
    pool.allocate("a")
    keys = torch.randn(length, 2, 8)
    pool.append("a", keys, keys)
    tiles = kv_layout.tiles(length, 64)
    assert 40 - pool.free_blocks == tiles.count
    one = pool.k_cache[0].nbytes + pool.v_cache[0].nbytes
    assert tiles.count * one == tiles.keys * 2 * (2 * 8 * 4)


@pytest.mark.parametrize("batch", [32, 64, 128])
def test_the_calculator_knows_no_conflict_at_stride_1_whatever_the_batch(batch: int) -> None:
    for block in range(batch):
        assert banks.ways(block * 8192 + lane for lane in range(32)) == 1 == banks.strided_ways(1)
    assert [banks.strided_ways(s) for s in (2, 4, 8, 16, 32, 33)] == [2, 4, 8, 16, 32, 1]


@given(st.floats(0.5, 3.0), st.floats(5.0, 12.0), st.floats(20.0, 30.0))
def test_a_known_curve_is_found_again(a: float, log_b: float, log_peak: float) -> None:
    w = 2.0 ** np.arange(2, 22)
    y = bandwidth.curve(w, math.exp(log_peak), a, math.exp(log_b))
    found = bandwidth.fit(w.tolist(), y.tolist())
    assert found.peak.value == pytest.approx(math.exp(log_peak), rel=1e-3)
    assert (found.a.value, found.b.value) == (pytest.approx(a, rel=1e-2), pytest.approx(math.exp(log_b), rel=1e-2))
    assert max(map(abs, found.residuals)) < 1e-3


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    w = 2.0 ** np.arange(14)
    hits = 0
    for _ in range(40):
        y = bandwidth.curve(w, 1e10, 1.3, 200.0) * np.exp(rng.normal(0, 0.05, len(w)))
        found = bandwidth.fit(w.tolist(), y.tolist())
        hits += found.b.low <= 200.0 <= found.b.high
    assert hits >= 33  # 38 expected; fewer than 33 once in a thousand


@pytest.mark.parametrize(
    ("w", "y", "words"),
    [([1, 2, 3], [1, 2, 3], "3 amounts of work"), ([1, 1, 1, 1], [1, 2, 3, 4], "1 amounts"), ([1, 2], [1], "as many"),
     ([0, 1, 2, 3], [1, 1, 1, 1], "above 0")],
)  # fmt: skip
def test_too_few_points_are_refused(w: list[float], y: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bandwidth.fit(w, y)


def row(n: int, backend: str = "a", **more: object) -> dict:  # type: ignore[type-arg]
    return {"backend": backend, "q_len": n, "kv_len": n, "batch": 1, **more}


def test_lines_differ_along_one_axis_only() -> None:
    table = [row(n, b) for b in ("a", "b") for n in (1, 2, 4)] + [row(8, batch=2), row(3, q_len=1)]
    found = growth.lines(table)
    assert [(x.axis, x.rows, x.x) for x in found] == [
        ("seq_len", (0, 1, 2), (1.0, 2.0, 4.0)), ("seq_len", (3, 4, 5), (1.0, 2.0, 4.0)),
    ]  # fmt: skip
    alike = [row(n, q_lens=f"{n},{n}", kv_lens=f"{n},{n}") for n in (1, 2, 4)]
    assert len(growth.lines(alike)) == 1
    mixed = [row(n, q_lens=f"{n},1", kv_lens=f"{n},1") for n in (1, 2, 4)]
    assert [x.rows for x in growth.lines(mixed)] == []


@given(st.floats(0.2, 3.0), st.floats(0.1, 1e9))
def test_the_exponent_of_a_power_is_found(power: float, level: float) -> None:
    table = [row(n) for n in (64, 128, 256, 512)]
    (line,) = growth.lines(table)
    found = growth.fit(line, [level * r["q_len"] ** power for r in table])
    assert found is not None and found.value == pytest.approx(power)
    assert growth.fit(line, [1.0, None, None, 2.0]) is None


def test_the_knee_is_where_a_linear_path_falls_to_a_quadratic_one() -> None:
    x = [64.0 * 2**i for i in range(8)]
    y = [v * 1000 if v <= 512 else 1000 * v**2 / 512 for v in x]
    found = growth.knee(x, y)
    assert found is not None and found.at == 512
    assert (found.before.value, found.after.value) == (pytest.approx(1.0), pytest.approx(2.0))
    assert growth.knee(x, [v * 3 for v in x]) is None
    assert growth.knee(x[:4], y[:4]) is None
