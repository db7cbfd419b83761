"""Models of the catalogue, each against something slower or exact."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.catalogue import banks, cache, estimates, fragmentation, kv_memory, serving, traffic
from harness.model import Case
from harness.model.suite import ragged

SCALARS = st.one_of(st.integers(), st.text(max_size=5), st.booleans(), st.none())
PARAMS = st.dictionaries(st.text(max_size=4), SCALARS, max_size=4)


def test_the_memory_model_is_linear_and_reproduces_the_report() -> None:
    per_token = kv_memory.bytes_per_token(layers=32, kv_heads=32, head_dim=128, itemsize=2, batch=12)
    assert [round(per_token * n / 1e9, 1) for n in (128, 512, 2048)] == [0.8, 3.2, 12.9]
    assert (
        kv_memory.bytes_per_token(layers=32, kv_heads=32, head_dim=128, itemsize=2, batch=4) * 32768 == 68_719_476_736
    )


def test_the_model_meets_what_is_measured_and_tells_unused_capacity() -> None:
    from harness.measuring.operations import OPERATIONS

    for capacity, share in ((64, 0.0), (1024, 15.0)):
        work = ragged("kv_cache", [(1, 64)] * 2, layers=2, capacity=capacity)
        made = OPERATIONS["kv_cache"].inputs(work.params, 0, "cpu")
        measured = made.bytes - made.options["kv_lens"].nbytes
        found = kv_memory.gap(work.params, measured)
        assert found is not None and found.share == share and found.alarm is (share > 0)
    assert kv_memory.gap({"rows": 3}, 100.0) is None
    with pytest.raises(ValueError, match="at least 1"):
        kv_memory.bytes_per_token(layers=0, kv_heads=1, head_dim=1, itemsize=1)


def test_the_model_counts_stored_dtypes_and_head_sizes_and_tells_what_parts_from_it() -> None:
    plain = {"batch": 2, "heads_q": 4, "heads_kv": 2, "kv_len": 10, "head_dim": 8, "dtype": "float16"}
    assert kv_memory.model_bytes(plain) == 2 * 10 * 2 * (8 + 8) * 2
    assert kv_memory.model_bytes(plain | {"kv_dtype": "float8_e4m3fn", "head_dim_v": 4}) == 2 * 10 * 2 * (8 + 4)
    assert kv_memory.model_bytes(plain | {"layout": "expanded_kv"}) == 2 * 10 * (8 + 8) * 2
    needs = {"kv_model_bytes": 1000.0}
    fits, doubled = needs | {"kv_cache_bytes": 1040.0}, needs | {"peak_kv_cache_bytes": 2000.0}
    assert kv_memory.parted([("a", {}, fits), ("b", {}, needs), ("c", {"capacity": 9}, doubled)]) == []
    (said,) = kv_memory.parted([("a", {}, fits), ("b x", {}, doubled), ("d", {}, needs | {"kv_cache_bytes": 1100.0})])
    assert "2 of 3 cases, most in b x: 2e+03 B for 1e+03 B (+100%)" in said
    cases = [Case("x", ragged("varlen_attention", [(1, n)]), "b") for n in (64, 512, 128)]
    size, most = kv_memory.largest(cases) or (0, None)
    assert most is cases[1] and size == kv_memory.model_bytes(cases[1].workload.params)
    assert kv_memory.largest([]) is None


@given(
    st.sampled_from(["first_fit", "best_fit", "paged"]),
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)), max_size=40),
)
def test_no_block_is_given_twice_and_none_is_lost(policy: fragmentation.Policy, steps: list[tuple[int, int]]) -> None:
    made = fragmentation.Allocator(30, policy)
    held: list[np.ndarray] = []
    for blocks, leave in steps:
        if leave == 0 and held:
            made.release(held.pop(0))
        enough = blocks <= made.free_blocks
        got = made.allocate(blocks)
        if got is not None:
            assert len(got) == blocks
            held.append(got)
            if policy != "paged":
                assert list(got) == list(range(got[0], got[0] + blocks))
        elif policy == "paged":
            assert not enough
        else:
            runs = made.free_runs()
            assert not enough or (runs[:, 1] - runs[:, 0]).max(initial=0) < blocks
        every = np.concatenate(held) if held else np.zeros(0)
        assert len(set(every)) == len(every) == 30 - made.free_blocks == made.taken.sum()


def test_indices_by_hand_and_over_a_trace() -> None:
    made = fragmentation.Allocator(10, "first_fit")
    kept = [made.allocate(n) for n in (2, 3, 1)]
    assert kept[1] is not None
    made.release(kept[1])  # free: 3 blocks at 2, 4 blocks at 6
    assert made.indices() == (pytest.approx(0.5 / 3.5), 0.4)
    with pytest.raises(ValueError, match="free already"):
        made.release(kept[1])
    requests = fragmentation.trace(600, seed=1, load=0.42)
    assert requests == fragmentation.trace(600, seed=1, load=0.42)
    contiguous, paged = (fragmentation.run(requests, 1000, p) for p in ("first_fit", "paged"))  # type: ignore[arg-type]
    assert contiguous.fragmented > 0 == paged.fragmented
    # The rule flags paged caches too, though nothing is refused for it: it is an alarm of contiguous caches only.
    assert paged.flagged() > 0.2


def test_the_heat_map_holds_every_block_once() -> None:
    taken = np.arange(100_000) % 3 == 0
    picture = fragmentation.heat_map(taken)
    assert picture.shape == (32, 64)
    assert np.nanmean(picture) == pytest.approx(taken.mean(), abs=1e-3)
    assert fragmentation.heat_map(np.ones(3, dtype=bool)).shape == (1, 64)


@given(st.integers(0, 300), st.integers(1, 32))
def test_the_closed_form_of_conflicts_is_brute_force(stride: int, lanes: int) -> None:
    assert banks.strided_ways(stride, lanes) >= banks.ways(stride * n for n in range(lanes))
    if lanes == 32:
        assert banks.strided_ways(stride) == banks.ways(stride * n for n in range(32))


def test_the_reported_combination_has_the_conflicts_of_its_neighbour() -> None:
    assert [banks.tile(n, 128).column_ways for n in (1024, 1025)] == [32, 32]
    assert [banks.tile(n, 128).row_ways for n in (1024, 1025)] == [1, 1]
    assert banks.tile(1025, 128, pad=1).column_ways == 1
    assert not banks.tile(1025, 128).fits


def test_saw_teeth_are_what_growth_does_not_explain() -> None:
    times = {n: float(n) * (3.0 if n in (129, 257) else 1.0) for n in banks.around([128, 256])}
    assert [t.n for t in banks.saw_teeth(times)] == [128, 256]
    assert banks.saw_teeth({n: float(n) for n in range(1, 50)}) == []


@given(PARAMS, PARAMS, st.text(max_size=3), st.text(max_size=3))
def test_keys_are_equal_only_for_equal_things(a: dict, b: dict, x: str, y: str) -> None:  # type: ignore[type-arg]
    v = cache.Version("1", "e", "k")
    same = x == y and {k: (type(n), n) for k, n in a.items()} == {k: (type(n), n) for k, n in b.items()}
    assert (cache.key_of(v, x, a) == cache.key_of(v, y, b)) is same
    assert cache.key_of(v, x, a) == cache.key_of(v, x, dict(reversed(a.items())))


def test_the_reported_key_collides() -> None:
    assert cache.reported_key("v", "x", {"q": "1:r=2"}) == cache.reported_key("v", "x", {"q": "1", "r": "2"})


def test_a_new_version_reads_nothing_old_and_is_warm(tmp_path: Path) -> None:
    calls: list[str] = []

    def compute(name: str) -> object:
        calls.append(name)
        return {"value": name}

    old, new = cache.Version("1", "e", "k"), cache.Version("1", "e", "k2")
    made = cache.Cache(tmp_path, old, size=1)
    assert made.get("a", {"n": 1}, lambda: compute("old")) == {"value": "old"}
    assert made.get("b", {}, lambda: compute("b")) == {"value": "b"}
    assert made.get("a", {"n": 1}, lambda: compute("never")) == {"value": "old"}  # from files: memory holds one
    assert (made.hits, made.misses) == ({"memory": 0, "files": 1}, 2)
    made.publish(new, [("a", {"n": 1}, lambda: compute("warm"))])
    assert made.get("a", {"n": 1}, lambda: compute("never")) == {"value": "warm"}
    made.invalidate()
    assert made.get("a", {"n": 1}, lambda: compute("again")) == {"value": "again"}
    assert calls == ["old", "b", "warm", "again"]
    assert cache.Cache(tmp_path, old).get("a", {"n": 1}, lambda: compute("gone")) == {"value": "gone"}


def test_a_spoilt_file_is_computed_anew(tmp_path: Path) -> None:
    made = cache.Cache(tmp_path, cache.Version("1", "e", "k"))
    made.get("a", {}, lambda: 1)
    (file,) = tmp_path.rglob("*.json")
    file.write_text("{", encoding="utf-8")
    assert cache.Cache(tmp_path, made.version).get("a", {}, lambda: 2) == 2


@given(st.dictionaries(st.integers(0, 7), st.floats(-10, 10), min_size=8, max_size=8))
def test_shares_add_up_to_the_rise(numbers: dict[int, float]) -> None:
    players = ("a", "b", "c")
    values = {frozenset(p for i, p in enumerate(players) if n >> i & 1): x for n, x in numbers.items()}
    shares = serving.shapley(values)
    assert sum(shares.values()) == pytest.approx(values[frozenset(players)] - values[frozenset()], abs=1e-9)


def test_additive_faults_get_what_they_cost_and_idle_ones_nothing() -> None:
    cost = {"a": 1.0, "b": 4.0, "c": 0.0}
    subsets = [frozenset(p for i, p in enumerate(cost) if n >> i & 1) for n in range(8)]
    assert serving.shapley({s: sum(cost[p] for p in s) for s in subsets}) == pytest.approx(cost)
    with pytest.raises(ValueError, match="no value for"):
        serving.shapley({frozenset("ab"): 1.0})


def test_serving_gives_every_request_its_tokens_in_simulated_time() -> None:
    ticks = iter(range(1_000_000))
    batches: list[int] = []
    asked = traffic.Traffic(20, 2.0, 3, new_tokens=4)
    served = serving.serve(lambda lens: batches.append(len(lens)), asked, max_batch=3, clock=lambda: float(next(ticks)))
    assert len(served.token_s) == 80 == sum(batches) and len(served.first_s) == 20 and max(batches) == 3
    assert set(served.token_s) == {1.0} and min(served.first_s) >= 1.0


def test_estimates_know_what_they_do_not_know() -> None:
    assert estimates.share(0, 100).low == 0 < estimates.share(0, 100).high < 0.05
    assert estimates.quantile(range(1, 101), 0.99).high == math.inf
    tail = estimates.quantile(range(1, 10_001), 0.99)
    assert tail.low < 9900 < tail.high < math.inf
    assert estimates.exponent([1, 2, 4, 8], [3, 12, 48, 192]).value == pytest.approx(2.0)
    assert estimates.mean([5.0]).high == math.inf
    with pytest.raises(ValueError, match="needs 3"):
        estimates.exponent([1, 2], [0, 1])
