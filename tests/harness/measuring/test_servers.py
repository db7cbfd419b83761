"""Operations of a server, measured by the bench: what is counted, and which parameters are refused."""

from __future__ import annotations

from typing import Any

import pytest

from harness.measuring import Bench
from harness.measuring.arguments import Notes
from harness.measuring.operations import OPERATIONS
from harness.measuring.params import ParamError
from harness.model import Case, MeasureOptions, Scalar, Status, Workload

OPTIONS = MeasureOptions(rel_width=0.5, max_seconds=0.01, min_samples=2, hot=False)
SERVING: dict[str, Scalar] = {
    "requests": 3, "rate": 1.0, "max_batch": 2, "lengths": "8,16", "shortest": 8, "longest": 16, "new_tokens": 2,
    "capacity": 64, "heads_q": 2, "heads_kv": 1, "head_dim": 8, "variance": 1.0, "dtype": "float16",
}  # fmt: skip
BATCHES: dict[str, Scalar] = {"sizes": "3,8,12", "distinct": 3, "calls": 4, "hidden_size": 8, "dtype": "float32"}
POOL: dict[str, Scalar] = {
    "requests": 80, "capacity": 64, "lengths": "16,16,256", "shortest": 16, "longest": 256, "page_size": 16,
    "held": 0.9, "head_dim": 4, "dtype": "float32",
}  # fmt: skip


def measured(operation: str, params: dict[str, Scalar], backend: str) -> dict[str, float]:
    got = Bench("cpu").measure(Case("b", Workload(operation, params), backend), OPTIONS)
    assert got.status is Status.OK, got.detail
    return {n: v.value for n, v in got.metrics.items()}


def test_a_server_that_walks_the_capacity_wastes_what_the_keys_do_not_fill() -> None:
    trimmed, fixed = (measured("serving", SERVING, b) for b in ("server_trimmed", "server_fixed"))
    assert trimmed["wasted_work_ratio"] == 1.0
    keys = OPERATIONS["serving"].work(SERVING).used_keys
    assert fixed["wasted_work_ratio"] == pytest.approx(64 * 6 / keys) and fixed["wasted_work_ratio"] > 3
    assert trimmed["token_p50_s"] > 0 and "token_p99_s" not in trimmed, "six tokens have no P99"


def test_graphs_hits_and_padding_are_counted() -> None:
    static, padded = (measured("compiled_batches", BATCHES, b) for b in ("compiled_static", "compiled_eights"))
    assert (static["compiled_graphs"], static["cache_hit_rate"], static["padding_share"]) == (3, 0.25, 0)
    assert (padded["compiled_graphs"], padded["cache_hit_rate"]) == (2, 0.5) and padded["padding_share"] > 0


def test_what_found_no_place_is_counted_and_both_indices_kept() -> None:
    first, paged = (measured("block_pool", POOL, b) for b in ("pool_first_fit", "pool_paged"))
    assert first["misplaced_requests"] > 0 == paged["misplaced_requests"]
    assert first["operator_calls"] > paged["operator_calls"], "moving is work"
    assert paged["free_run_scatter"] > 0 and 0 <= paged["largest_free_share"] < 1


@pytest.mark.parametrize(
    ("operation", "params", "name"),
    [
        ("serving", SERVING | {"capacity": 16}, "capacity"),
        ("serving", SERVING | {"longest": 17}, "longest"),
        ("serving", SERVING | {"rate": 0}, "rate"),
        ("serving", SERVING | {"lengths": "x"}, "lengths"),
        ("compiled_batches", BATCHES | {"distinct": 2}, "distinct"),
        ("compiled_batches", BATCHES | {"sizes": "3,3,3"}, "sizes"),
        ("compiled_batches", BATCHES | {"calls": 2}, "calls"),
        ("block_pool", POOL | {"held": "much"}, "held"),
        ("block_pool", POOL | {"page_size": 0}, "page_size"),
    ],
)
def test_parameters_that_cannot_be_are_named(operation: str, params: dict[str, Any], name: str) -> None:
    with pytest.raises(ParamError, match=name):
        OPERATIONS[operation].inputs(params, 0, "cpu")


def test_notes_are_kept_during_one_call_only() -> None:
    notes = Notes()
    notes("before")
    kept = notes.during(lambda: notes("now", 3.0))
    notes("after")
    assert [(n.what, n.value) for n in kept] == [("now", 3.0)] and not notes.listening
    with pytest.raises(ZeroDivisionError):
        notes.during(lambda: 1 // 0)
    assert not notes.listening
