"""What an A/B over many cases says, from results that are given."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from harness.ab import ABCase
from harness.ab_report import ab_report, gate, triggers
from harness.detection.ab import ABResult
from harness.model import Case, Status, VerdictKind, Workload

V = VerdictKind
LENGTHS = (64, 127, 128, 129, 256, 384, 385, 500, 512, 640, 641, 1024, 1153)


def result(ratio: float, verdict: VerdictKind, spread: float = 0.05) -> ABResult:
    return ABResult(ratio, ratio * (1 - spread), ratio * (1 + spread), 0.01, verdict, 0.05, 20, 20)


def case(backend: str, q_len: int, kv_len: int, weight: float = 1.0) -> Case:
    return Case("decode", Workload("attention", {"q_len": q_len, "kv_len": kv_len}, weight), backend)


def item(c: Case, r: ABResult | None, head: Status = Status.OK, base: Status = Status.OK) -> ABCase:
    timed = [1.0] * 9 if r else []
    return ABCase(c, base, head, r, "", timed, [x * (r.ratio if r else 1) for x in timed], 0.5, 0.75)


def table(of: Callable[[str, int, int], tuple[float, VerdictKind] | Status]) -> list[ABCase]:
    done = []
    for backend in ("sdpa_math", "segmented"):
        for q_len in (1, 4):
            for n in LENGTHS:
                got = of(backend, q_len, n)
                c = case(backend, q_len, n)
                done.append(item(c, None, got) if isinstance(got, Status) else item(c, result(*got)))
    return done


def test_effects_that_differ_share_one_trigger_among_ambiguous_others() -> None:
    """A cost for each block: from 1.4 to 8 times, while nothing else is proven to be the same."""

    def of(backend: str, q_len: int, n: int) -> tuple[float, VerdictKind]:
        if backend == "segmented" and q_len == 1 and n % 128:
            return 1.4 + n / 180, V.SLOWER
        return 0.97 + 0.06 * (n % 7) / 7, V.AMBIGUOUS

    told = triggers(table(of))
    assert [t["text"] for t in told["triggers"]] == ["backend == 'segmented' and q_len == 1 and kv_len % 128 != 0"]
    (t,) = told["triggers"]
    assert (t["regressed_inside"], t["inside"], t["regressed_total"]) == (7, 7, 7) and t["effect"] > 1.4
    assert t["effect_ci"][0] < t["effect"] < t["effect_ci"][1] and told["unexplained"] == []


def test_an_ambiguous_case_that_may_be_as_slow_is_no_evidence() -> None:
    def of(backend: str, q_len: int, n: int) -> tuple[float, VerdictKind]:
        if backend == "segmented" and n % 128:
            return (1.3, V.SLOWER) if n != 129 else (1.29, V.AMBIGUOUS)
        return 1.0, V.SAME

    (t,) = triggers(table(of))["triggers"]
    assert t["text"] == "backend == 'segmented' and kv_len % 128 != 0"
    assert t["inside"] == 12, "two ambiguous ones are left out"


def test_what_broke_and_what_is_slower_have_triggers_of_their_own() -> None:
    def of(backend: str, q_len: int, n: int) -> tuple[float, VerdictKind] | Status:
        if backend == "segmented" and n % 128:
            return Status.WRONG
        return (1.5, V.SLOWER) if q_len == 4 else (1.0, V.SAME)

    done = table(of)
    told = triggers(done)
    assert [t["text"] for t in told["triggers"]] == ["backend == 'segmented' and kv_len % 128 != 0", "q_len == 4"]
    assert told["triggers"][0]["effect"] is None
    found = gate(done)
    assert not found["go"] and found["reasons"] == [
        "19 of 52 cases are slower",
        "14 of 52 cases fail on head and work on base",
    ]


def test_nothing_slower_is_a_go_and_has_no_trigger() -> None:
    done = table(lambda b, q, n: (0.5, V.FASTER) if q == 1 else (1.0, V.AMBIGUOUS))
    report = ab_report(done)
    assert report["triggers"] == [] and report["unexplained"] == [] and report["gate"]["go"]
    assert report["gate"]["weighted_ratio"] == pytest.approx(0.75) and report["gate"]["lost_s"] == 0
    assert report["gate"]["first_call_s"] == [26.0, 39.0]


def test_one_case_alone_is_unexplained_and_losses_rank_by_weight() -> None:
    one = item(case("a", 1, 64), result(2.0, V.SLOWER))
    assert triggers([one]) == {"triggers": [], "unexplained": [dict(one.case.columns)]}
    heavy = item(case("a", 1, 128, weight=100.0), result(1.1, V.SLOWER))
    report = ab_report([one, heavy])
    assert [c["kv_len"] for c in report["cases"]] == [128, 64]
    assert [round(c["lost_s"], 6) for c in report["cases"]] == [10.0, 1.0]
    assert report["gate"]["weighted_ratio"] == pytest.approx((110 + 2) / 101)


def test_a_backend_that_head_no_longer_offers_is_a_no_go() -> None:
    done = [item(case("a", 1, 64), result(1.0, V.SAME)), item(case("b", 1, 64), None, Status.UNSUPPORTED)]
    found = gate(done)
    assert not found["go"] and found["reasons"] == ["1 of 2 cases are not offered by head any more"]
    assert gate([item(case("b", 1, 64), None, Status.UNSUPPORTED, Status.UNSUPPORTED)])["go"]


def test_an_unbounded_interval_gives_no_effect() -> None:
    open_end = ABResult(2.0, 0.0, math.inf, 0.01, V.SLOWER, math.inf, 5, 5)
    done = [item(case("a", 1, n), open_end) for n in (64, 128)]
    (t,) = triggers(done)["triggers"]
    assert t["text"] == "True" and t["effect"] is None
