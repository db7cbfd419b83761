"""Facts of an incident, names, advice and alarms: pure functions against cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import facts, text
from dashboard.advice import advice, standings, verdict
from dashboard.alarms import alarms
from dashboard.labels import short_names
from dashboard.sized import neighbours, sized
from db.incidents import IncidentDetail, IncidentRow, RegressionRow
from db.queries import CaseRow, EnvironmentRow, RunRow
from db.screens import CaseValues, Coverage, Pair
from harness.model import Value
from harness.model.expr import compile_expr

RUN = RunRow(
    "r", "nightly", "nightly", "v", "a" * 40, False, None, "", "", "m", "cpu", "CPU", "e", "h", "", 1.0, 2.0, True, 1,
    1, "1", {},
)  # fmt: skip


def case(key: str, backend: str = "sdpa_math", weight: float = 1.0, **params: Any) -> CaseRow:
    return CaseRow(
        key, "decode", "1", "attention", backend, params, " ".join(f"{k}={v}" for k, v in params.items()), weight
    )


def regression(c: CaseRow, ratio: float | None = 1.3, state: str = "confirmed", **changes: Any) -> RegressionRow:
    low, high = (None, None) if ratio is None else (ratio - 0.1, ratio + 0.1)
    made = RegressionRow(c, "latency_s", "base", "head", ratio, low, high, 0.01, 0.02, "slower", state, "ok", "ok")
    return replace(made, **changes)


def pair(c: CaseRow, base: float | None, head: float | None, status: str = "ok") -> Pair:
    sides = [None if v is None else Value(v, v * 0.99, v * 1.01, 9) for v in (base, head)]
    return Pair(c, sides[0], sides[1], "ok" if base else "", status)


def detail(regressions: list[RegressionRow], trigger: str = "kv_len == 2", **evidence: Any) -> IncidentDetail:
    row = IncidentRow("i", "t", trigger, "new", "m", "b", "a", 1.3, 1.2, 1.4, 0.0, 0.0, "", evidence, len(regressions))
    return IncidentDetail(row, regressions, [])


CASES = {(n, d): case(f"{n}-{d}", kv_len=n, head_dim=d) for n in (1, 2) for d in (64, 128)}


def test_cells_show_the_worst_what_is_untested_and_what_is_unsure() -> None:
    found = [
        pair(CASES[1, 64], 1.0, 1.0), pair(CASES[2, 64], 1.0, 1.3), pair(CASES[2, 128], 1.0, 1.2),
    ]  # fmt: skip
    trigger = compile_expr("kv_len == 2")
    layout = facts.Axes("kv_len", "head_dim", None, [], [])
    made = {(c["x"], c["y"]): c for c in facts.cells(found, [regression(CASES[2, 64])], trigger, layout)}
    assert len(made) == 4
    assert not made[1, 128]["tested"]
    assert made[1, 64] == made[1, 64] | {"tested": True, "inside": False, "unsure": False, "short": "+0"}
    assert made[2, 64] == made[2, 64] | {"inside": True, "unsure": False, "ratio": 1.3, "note": "confirmed"}
    assert made[2, 128] == made[2, 128] | {"inside": True, "unsure": True, "note": "looks slower, not confirmed"}
    over = facts.Axes("kv_len", "backend", None, [], ["head_dim"])
    worst = {c["x"]: c for c in facts.cells(found, [regression(CASES[2, 64])], trigger, over)}
    assert (worst[2]["ratio"], worst[2]["cases"]) == (1.3, 2)


def test_maps_with_regressions_come_first_and_none_is_shown_where_nothing_ran() -> None:
    layout = facts.Axes("kv_len", "head_dim", "backend", [], [])
    cases = {b: case(f"k-{b}", b, kv_len=1, head_dim=64) for b in ("absent", "idle", "slow")}
    found = [
        pair(cases["absent"], None, None, "unsupported"), pair(cases["idle"], 1.0, 1.0), pair(cases["slow"], 1.0, 1.5),
    ]  # fmt: skip
    made = facts.cells(found, [regression(cases["slow"])], None, layout)
    assert list(dict.fromkeys(c["facet"] for c in made)) == ["slow", "idle"]
    only = facts.cells(found[:1], [], None, layout)
    assert [c["facet"] for c in only] == ["absent"], "something rather than nothing"


def test_a_case_that_fails_is_marked_and_counts_as_the_worst() -> None:
    layout = facts.Axes("kv_len", "backend", None, [], [])
    found = [pair(CASES[1, 64], 1.0, None, "wrong"), pair(CASES[1, 128], 1.0, 9.0)]
    made = facts.cells(found, [regression(CASES[1, 64], None)], None, layout)[0]
    assert (made["short"], made["ratio"], made["label"], made["inside"]) == ("✕", None, "wrong results", True)


def test_axes_follow_the_trigger_and_obey_what_was_asked() -> None:
    cases = [case(f"{n}-{d}-{b}-{k}", b, kv_len=n, head_dim=d, batch=k) for n in (1, 2) for d in (1, 2) for b in "ab"
             for k in (1, 2, 3)]  # fmt: skip
    made = facts.axes(cases, compile_expr("head_dim == 1 and kv_len == 2"))
    assert {made.x, made.y} == {"head_dim", "kv_len"}
    assert made.facet == "backend"
    assert made.over == ["batch"]
    asked = facts.axes(cases, None, "batch", "batch", "none")
    assert asked.x == "batch" != asked.y
    assert asked.facet is None
    assert facts.axes(cases, None, "no such column").x in made.choices


@given(
    st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=12) | st.integers() | st.booleans(), max_size=4)
)
def test_the_predicate_of_a_case_holds_for_it_alone(params: dict[str, Any]) -> None:
    params = {k: v for k, v in params.items() if k not in ("operation", "backend", "benchmark")}
    one, other = case("1", 'it\'s "one"', **params), case("2", "another", **params)
    holds = compile_expr(facts.where_of(one))
    assert holds(one.columns)
    assert not holds(other.columns)


def test_commands_are_quoted_and_compare_commits_only_where_they_differ() -> None:
    base, head = replace(RUN, commit="a" * 40), replace(RUN, commit="b" * 40)
    assert facts.reproduce("x == 1", "nightly", base, head).startswith(
        f"attnwatch compare --base {'a' * 12} --head {'b' * 12} "
    )
    for a, b in ((base, base), (None, head), (replace(base, commit=None), head), (replace(base, dirty=True), head)):
        assert facts.reproduce("x == 1", "nightly", a, b).startswith("attnwatch measure ")
    assert facts.reproduce("a == '$(rm)'", "my suite", None, None).endswith(
        """--suite 'my suite' --where 'a == '"'"'$(rm)'"'"''"""
    )


def test_evidence_speaks_for_and_against() -> None:
    pairs = [pair(c, 1.0, 1.3 if n == 2 else 1.0) for (n, _), c in CASES.items()]
    hit = [regression(CASES[2, 64]), regression(CASES[2, 128])]
    trigger = compile_expr("kv_len == 2")
    good, bad = facts.evidence(detail(hit, how=["interleaved"]), pairs, trigger, {"control_gemm_s": 1.01})
    assert good[0] == "2 of 2 combinations were confirmed: interleaved"
    assert "2 of 2 tested combinations inside the trigger regressed" in good
    assert "0 of 2 outside it regressed" in good
    assert bad == []
    unsure = [hit[0], regression(CASES[1, 64], 1.05, "suspect")]
    good, bad = facts.evidence(detail(unsure, alternatives=["a", "b"]), pairs, trigger, {"control_gemm_s": 1.2})
    text_ = " / ".join(bad)
    for words in ("1 of 2 combinations could not be confirmed", "1 of 2 tested combinations inside",
                  "1 of 2 outside it", "2 other predicates", "reaches no change",
                  "control gemm moved by +20.0 %"):  # fmt: skip
        assert words in text_
    assert "better than chance" in facts.evidence(detail(hit, ""), pairs, None, {})[1][0]


def test_differences_of_environments_and_operators() -> None:
    a = EnvironmentRow("1", "3.11", {"torch": "2.12", "numpy": "2"}, "", {}, 1, "k1")
    b = replace(a, packages={"torch": "2.13", "numpy": "2"}, variables={"X": "1"}, kernels_hash="k2")
    rows = {r["what"]: (r["last good"], r["first bad"]) for r in facts.difference(a, b)}
    assert rows == {"kernels": ("k1", "k2"), "package torch": ("2.12", "2.13"), "variable X": ("absent", "1")}
    assert facts.difference(a, a) == []
    assert facts.operator_changes(["flash", "copy"], ["math", "copy"]) == [
        {"operator": "math", "change": "new"}, {"operator": "flash", "change": "no longer dispatched"},
    ]  # fmt: skip


@given(st.text(max_size=60))
def test_no_text_means_anything_to_markdown(raw: str) -> None:
    made = text.plain(raw)
    assert not set(made) & set("<>*_`[]$:|~\\\n\r")


@pytest.mark.parametrize(
    ("args", "words"),
    [((1.309, 1.28, 1.351), "+30.9 % (+28.0 to +35.1)"), ((0.9,), "-10.0 %"), ((None,), "no number"),
     ((12.0, 1, 2), "×12"), ((float("inf"),), "no number")],
)  # fmt: skip
def test_effects(args: tuple[Any, ...], words: str) -> None:
    assert text.effect(*args) == words


@pytest.mark.parametrize(
    ("ago", "words"), [(10, "now"), (600, "10 min"), (7200, "2 h"), (86400, "24 h"), (864000, "10 d")]
)
def test_ages(ago: float, words: str) -> None:
    assert text.age(1e9, 1e9 + ago) == words


def test_names_keep_what_varies() -> None:
    names, same = short_names([case("a", q_len=1, kv_len=1, batch=2), case("b", q_len=2, kv_len=2, batch=2)])
    assert names == {"a": "seq_len=1", "b": "seq_len=2"}
    assert same == "batch=2"
    assert short_names([]) == ({}, "")


def test_neighbours_differ_by_one_in_one_parameter() -> None:
    rows = [
        sized({"q_len": q, "kv_len": kv, "b": b})
        for q, kv, b in ((8, 8, 1), (9, 9, 1), (9, 9, 2), (1, 8, 1), (1, 9, 1))
    ]
    assert neighbours(rows, "seq_len") == [(8, 0, 1)]
    assert neighbours(rows, "kv_len") == [(8, 3, 4)]


def values(backend: str, n: int, latency: float, memory: float = 1.0, width: float = 0.01) -> CaseValues:
    v = Value(latency, latency * (1 - width), latency * (1 + width), 9)
    return CaseValues(
        case(f"{backend}{n}", backend, n=n), "ok", n, {"latency_s": v, "peak_memory_bytes": Value(memory)}
    )


def test_advice_names_the_fastest_its_margin_and_who_needs_less_memory() -> None:
    rows = [values("fast", n, 1.0, 8.0) for n in (1, 2)] + [values("lean", n, 1.5, 2.0) for n in (1, 2)]
    told = advice(standings([*rows, values("slow", 1, 9.0, 9.0)]))
    assert told[0].startswith("Take fast")
    assert "lean takes 1.50 times as long" in " ".join(told)
    assert "take lean: 4.00 times less" in " ".join(told)
    assert "slow was measured on 1 of 2" in " ".join(told)
    front = {s.backend: s.front for s in standings(rows)}
    assert front == {"fast": True, "lean": True}


def test_advice_says_when_the_samples_cannot_tell() -> None:
    rows = [values("a", n, 1.0, width=0.2) for n in (1, 2)] + [values("b", n, 1.1, width=0.2) for n in (1, 2)]
    assert "within noise" in advice(standings(rows))[0]
    assert "Only one" in advice(standings([]))[0]


@pytest.mark.parametrize(
    ("base", "head", "better", "word"),
    [(1.0, 1.5, "lower", "worse"), (1.0, 1.5, "higher", "better"), (1.0, 0.5, "lower", "better"),
     (1.0, 1.01, "lower", "within noise"), (1.0, 1.0, "lower", "same"), (None, 1.0, "lower", "only in one run")],
)  # fmt: skip
def test_verdicts_of_two_runs(base: float | None, head: float, better: str, word: str) -> None:
    assert verdict(pair(CASES[1, 64], base, head), better) == word


def test_alarms_tell_staleness_gaps_and_disturbance_and_nothing_else() -> None:
    day = 86400.0
    good = Coverage("m", "CPU", "s", "r", "v", 10 * day, 10 * day + 60, True, 10, 10, {"ok": 10}, 0)
    assert alarms([good], 10.5 * day) == []
    assert "No run on CPU for 3 d" in alarms([good], 13 * day)[0]
    assert "measured 7 of 10" in alarms([replace(good, measured=7)], 10.1 * day)[0]
    assert "lacks 3 cases" in alarms([replace(good, missing=3)], 10.1 * day)[0]
    assert "never ended" in alarms([replace(good, complete=False, finished_at=None)], 11 * day)[0]
    assert "disturbed machine" in alarms([replace(good, counts={"ok": 1, "invalid": 9})], 10.1 * day)[0]
    assert "no case that works" in alarms([replace(good, counts={"wrong": 9})], 10.1 * day)[0]
    retired = replace(good, machine="old", device_model="Old", started_at=day, missing=5)
    assert alarms([good, replace(retired, started_at=-40 * day)], 10.1 * day) == []
