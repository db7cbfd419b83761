"""What a budget begins with, and what it says of the rest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.likely import KINDS, Likely, at_boundary, counted, likely_first
from harness.model import Case, Workload
from harness.suites import load_suite

SIZES = (8, 64, 127, 128, 257, 300)


def make(kv_len: int, backend: str = "x", **more: int | bool) -> Case:
    return Case("q", Workload("attention", {"q_len": 1, "kv_len": kv_len, **more}), backend)


def test_sizes_beside_a_tile_lie_at_a_boundary() -> None:
    assert [n for n in SIZES if at_boundary(make(n))] == [127, 257]
    assert not at_boundary(make(8, causal=True)), "True is no size"
    assert all(at_boundary(c) for c in load_suite("boundary")), "whatever the boundary suite asks, at any size"


def test_boundary_then_unstable_then_touched_then_the_rest() -> None:
    cases = [make(n) for n in SIZES]
    likely = Likely({make(300).key, make(257).key}, lambda c: c.workload.params["kv_len"] in (8, 127))
    assert [c.workload.params["kv_len"] for c in likely_first(cases, likely)] == [257, 127, 300, 8, 128, 64]
    assert counted(cases, likely) == {"boundary": 2, "unstable": 1, "touched": 1, "rest": 2}


@given(st.lists(st.tuples(st.integers(1, 700), st.sampled_from("xyz")), unique=True), st.data())
def test_all_are_kept_in_levels_and_workloads_stay_together(shapes: list[tuple[int, str]], data: st.DataObject) -> None:
    cases = [make(n, b) for n, b in shapes]
    odd = {c.key for c in data.draw(st.lists(st.sampled_from(cases)))} if cases else set()
    likely = Likely(odd, lambda c: c.backend == "z")
    found = likely_first(cases, likely)
    assert sorted(c.key for c in found) == sorted(c.key for c in cases)
    labels = [c.workload.label for c in found]
    seen = list(dict.fromkeys(labels))
    assert labels == sorted(labels, key=seen.index), "one workload is not taken apart"
    best = {label: min(KINDS.index(likely.kind(c)) for c in found if c.workload.label == label) for label in seen}
    assert [best[label] for label in seen] == sorted(best.values())
    assert sum(counted(found, likely).values()) == len(cases)
