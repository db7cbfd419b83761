"""Reports as facts: what the commands print is read, and what they never print is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.ab import ABCase, row
from harness.ab_report import ab_report
from harness.comment.cases import compare_command
from harness.comment.facts import State
from harness.comment.reading import FIGURES, from_json
from harness.comment.render import render
from harness.detection.ab import ABResult
from harness.jsonout import dumps
from harness.model import AttnwatchError, Case, Status, VerdictKind, Workload
from harness.model.expr import compile_expr

from . import samples
from .test_render import check_page


def measured(kv_len: int, ratio: float, verdict: VerdictKind) -> ABCase:
    """One case as `compare` holds it."""
    case = Case("decode", Workload("attention", {"q_len": 1, "kv_len": kv_len}, 2.0), "segmented")
    result = ABResult(ratio, ratio * 0.9, ratio * 1.1, 0.01, verdict, 0.05, 20, 20, "log")
    return ABCase(case, Status.OK, Status.OK, result, "", [1e-3] * 20, [1e-3 * ratio] * 20)


def test_what_compare_writes_is_what_is_read() -> None:
    bad = [measured(128 * k + 1, 1.5, VerdictKind.SLOWER) for k in range(12)]
    good = [measured(128 * k, 1.0, VerdictKind.SAME) for k in range(1, 13)]
    case = Case("decode", Workload("attention", {"q_len": 1, "kv_len": 7}), "segmented")
    broken = [ABCase(case, Status.OK, Status.CRASHED, None, "head: gone")]
    done = [*bad, *good, *broken]
    assert {*row(done[0]), "lost_s"} - {*done[0].case.columns} == FIGURES
    facts = from_json(dumps({"base": "a", "head": "b", **ab_report(done), "left_out": [{"kv_len": 1}]}), "r")
    assert (facts.cases, facts.judged, facts.left_out, facts.state) == (25, 24, 1, State.ADVERSE)
    slow = next(g for g in facts.groups if g.kind == "slower")
    assert slow.trigger is not None and len(slow.changes) == 12 and slow.hit == slow.inside == 12
    rule = compile_expr(slow.trigger)
    assert all(rule(d.case.columns) for d in bad) and not any(rule(d.case.columns) for d in good)
    assert facts.groups[0].kind == "status" and facts.groups[0].changes[0].detail == "head: gone"


def test_every_adverse_case_is_in_exactly_one_group() -> None:
    facts = from_json(json.dumps(samples.hostile()), "r")
    labels = [c.label for g in facts.groups for c in g.changes]
    assert len(labels) == len(set(labels)) == 2 * len(samples.HOSTILE)


def test_a_trigger_that_no_case_bears_out_is_not_told() -> None:
    good = samples.row(128)
    facts = from_json(json.dumps(samples.report([good], [samples.trigger("kv_len == 128", [good], 1)])), "r")
    assert facts.groups == () and facts.state is State.CLEAN


def test_what_head_does_not_offer_any_more_is_adverse() -> None:
    gone = samples.failing(128, "ok", "unsupported")
    both = samples.failing(256, "unsupported", "unsupported")
    facts = from_json(json.dumps(samples.report([gone, both, samples.row(512)])), "r")
    assert [g.kind for g in facts.groups] == ["gone"] and facts.unsupported == 1


def test_samples_of_a_file_are_read() -> None:
    one = {"verdict": "slower", "ratio": 1.5, "ratio_ci": [1.4, None], "p": 0.0, "smallest_detectable": None}
    facts = from_json(json.dumps({"cases": {"a": one, "b": {**one, "verdict": "same", "ratio": 1.0}}}), "r")
    assert facts.state is State.ADVERSE and facts.groups[0].changes[0].label == "a"
    assert facts.smallest_detectable is None


@pytest.mark.parametrize(
    ("state", "shadow", "expected"),
    [
        ("new", False, "adverse"),
        ("new", True, "suspect"),
        ("suspect", False, "suspect"),
        ("fixed", False, "clean"),
        ("acknowledged", False, "clean"),
    ],
)
def test_a_night_is_read(state: str, shadow: bool, expected: str) -> None:
    facts = from_json(json.dumps(samples.night("operator_calls", shadow=shadow, state=state)), "r")
    assert facts.state == expected
    assert facts.command.startswith(f"attnwatch compare --base {'1' * 40} --head {'2' * 40} --suite full")
    for group in facts.groups:
        assert (group.hit, group.inside, group.hit_outside, group.outside) == (1, 1, 0, 11)
        assert group.incident == "e94298c4" and group.kind == "more"


def test_what_is_known_is_not_told_as_new() -> None:
    night = samples.night("operator_calls") | {"still_open": ["aaaa1111"]}
    night["incidents"][0]["is_new"] = False
    facts = from_json(json.dumps(night), "r")
    assert facts.state is State.CLEAN and facts.known == ("aaaa1111", "e94298c4")
    page = render(facts)
    assert page.startswith("**No new regression**") and "told before: `aaaa1111`, `e94298c4`." in page


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({"cases": None}, "field cases: is missing"),
        ({"cases": [3]}, "r: field cases[0]: must be an object"),
        ({"cases": [{**samples.row(), "ratio": "fast"}]}, "cases[0].ratio: must be a finite number or null"),
        ({"cases": [{**samples.row(), "ratio": True}]}, "cases[0].ratio: must be"),
        ({"cases": [{**samples.row(), "ratio": -1}]}, "cases[0].ratio: must not be below zero"),
        ({"cases": [{**samples.row(), "ratio": 10**400}]}, "cases[0].ratio: must be a finite number or null"),
        ({"cases": [{**samples.row(), "ratio": None}]}, "cases[0].ratio: is missing beside a verdict"),
        ({"cases": [{**samples.row(), "verdict": "great"}]}, "'great' is none of same"),
        ({"cases": [{**samples.row(), "verdict": []}]}, "cases[0].verdict"),
        ({"cases": [{**samples.row(), "base_status": "fine"}]}, "'fine' is none of ok"),
        ({"cases": [{**samples.row(), "kv_len": [1]}]}, "cases[0].kv_len: must be text"),
        ({"cases": [{**samples.row(), "x" * 600: 1}]}, "a name has more than 512 characters"),
        ({"cases": [{**samples.row(), "detail": "x" * 70000}]}, "has 70000 characters"),
        ({"base": 7}, "field base: must be text"),
        ({"triggers": [{"text": 3, "combinations": [samples.columns(samples.slower(129))]}]}, "triggers[0].text"),
        ({"left_out": "all"}, "field left_out: must be a list"),
    ],
)  # fmt: skip
def test_the_message_names_the_field(spoil: samples.Row, message: str) -> None:
    broken = {**samples.report([samples.slower(129)]), **spoil}
    with pytest.raises(AttnwatchError, match=r"^r: ") as told:
        from_json(json.dumps(broken), "r")
    assert message in str(told.value)


@pytest.mark.parametrize("text", ["", "[]", "3", '{"cases": NaN}', '{"a": 1}', "{" * 100_000, '"\\ud800"'])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(AttnwatchError):
        from_json(text, "r")


plain: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_spoilt_report_is_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    make = data.draw(st.sampled_from([samples.one_regression, samples.out_of_memory, lambda: samples.night("x")]))
    broken: Any = make()
    at: Any = broken
    for _ in range(data.draw(st.integers(0, 4))):
        keys = list(at) if isinstance(at, dict) else list(range(len(at))) if isinstance(at, list) else []
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if data.draw(st.booleans()):
            at[key] = data.draw(plain)
            break
        at = at[key]
    try:
        facts = from_json(json.dumps(broken), "r")
    except AttnwatchError as err:
        assert str(err).startswith("r: ") and "\n" not in str(err)
    else:
        check_page(render(facts, foreign=True))


@pytest.mark.parametrize(
    ("base", "head", "trusted", "expected"),
    [
        ("main", "working tree", True, "attnwatch compare --base main --suite full"),
        ("as installed", "A=1 B=x", True, "attnwatch compare --head-env A=1 --head-env B=x --suite full"),
        ("/bin/a", "/bin/b", True, "attnwatch compare --base-python /bin/a --head-python /bin/b --suite full"),
        ("abc1234", "def5678", False, "attnwatch compare --base abc1234 --head def5678 --suite full"),
        ("as installed", "LD_PRELOAD=/tmp/x.so", False, ""),
        ("main", "abc1234", False, ""),
        ("main; rm -rf /", "x", True, ""),
        ("--upload-pack=x", "x", True, ""),
        ("", "", True, ""),
    ],
)  # fmt: skip
def test_the_command_that_measures_again(base: str, head: str, trusted: bool, expected: str) -> None:
    assert compare_command(base, head, "full", trusted=trusted) == expected


def test_what_a_budget_left_and_what_a_change_does_not_touch_is_told() -> None:
    more = {"left_out": [{"kv_len": 1}] * 5, "left_out_kinds": {"boundary": 2, "rest": 3, "odd": 7}, "unaffected": 40}
    facts = from_json(dumps(samples.clean() | more), "r")
    assert (facts.left_out_kinds, facts.unaffected) == ((("boundary", 2), ("rest", 3)), 40)
    text = render(facts)
    assert "Of 57 cases: 5 left out when the budget ended (2 at boundaries, 3 others)" in text
    assert "40 not measured, since head does not touch them" in text
    none = from_json(dumps(samples.report([]) | {"unaffected": 9, "unchanged": False}), "r")
    assert none.state == State.NOTHING and "head changes nothing that any of 9 cases runs" in render(none)
    for wrong in ({"left_out_kinds": []}, {"left_out_kinds": {"rest": -1}}, {"unaffected": "9"}):
        with pytest.raises(AttnwatchError, match=r"left_out_kinds|unaffected"):
            from_json(dumps(samples.clean() | wrong), "r")


def test_the_commits_of_a_search_are_told_and_nothing_else_that_stands_there() -> None:
    found = ["a" * 40, "@octocat", "<b>", "b" * 12]
    text = render(from_json(dumps(samples.one_regression() | {"brought_by": found}), "r"))
    assert f"Brought by one of `{'a' * 40}`, `{'b' * 12}`." in text and "octocat" not in text
    one = render(from_json(dumps(samples.one_regression() | {"brought_by": found[:2]}), "r"))
    assert f"Brought by `{'a' * 40}`." in one
    assert "Brought" not in render(from_json(dumps(samples.clean() | {"brought_by": found}), "r"))
