"""Comments: golden pages, and what holds for any report."""

from __future__ import annotations

import json
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from harness.comment.cases import compare_command
from harness.comment.facts import Change, Facts, Group
from harness.comment.reading import from_json
from harness.comment.render import LIMIT_BYTES, marker_state, render, title
from harness.model import Status

from . import samples

GOLDEN = Path(__file__).parent / "golden"
PLAIN = frozenset({"text", "code_inline", "strong_open", "strong_close", "em_open", "em_close", "softbreak"})
#: Characters that do not show: control, zero width, direction.
UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
OURS = re.compile(r"</?details>|<summary>[\w ,…]*</summary>|<!-- attnwatch:comment [a-z]+ -->")


def facts_of(report: samples.Row) -> Facts:
    return from_json(json.dumps(report), "report.json", partial(compare_command, suite="decode.suite.json"))


def check_page(body: str, limit: int = LIMIT_BYTES) -> None:
    """The page is Markdown that holds no HTML, link or image but ours, and whose folds and tables are whole."""
    assert len(body.encode()) <= limit
    html: list[str] = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(body):
        if token.type == "html_block":
            html += [line for line in token.content.splitlines() if line.strip()]
        for child in token.children or ():
            assert child.type in PLAIN, child
            if child.type == "text":
                assert not re.search(r"[@#<`|]|://|www\.", child.content), child.content
    assert all(OURS.fullmatch(line) for line in html), html
    folds = [line for line in html if "details" in line]
    assert folds == ["<details>", "</details>"] * (len(folds) // 2)
    assert marker_state(body) is not None
    assert not UNSEEN.search(body)


@pytest.mark.parametrize("name", samples.GOLDEN)
def test_golden(name: str) -> None:
    body = render(facts_of(samples.GOLDEN[name]()))
    check_page(body)
    path = GOLDEN / f"{name}.md"
    if os.environ.get("ATTNWATCH_GOLDEN") == "write":
        path.write_text(body, encoding="utf-8")
    assert body == path.read_text(encoding="utf-8")


def test_the_first_line_is_the_verdict() -> None:
    lines = {name: render(facts_of(make())).splitlines()[0] for name, make in samples.GOLDEN.items()}
    assert lines["clean"] == "**No regression** in 12 cases"
    assert samples.ODD in lines["one-regression"] and lines["one-regression"].startswith("**1 regression**: slower")
    assert "40 of 40" in lines["forty-regressions"]
    assert lines["out-of-memory"].startswith("**1 regression**: out of memory where `kv_len >= 65536`")
    assert lines["improvement"].startswith("**Faster** in 3 of 5 cases")
    assert lines["ambiguous"].startswith("**Not settled**")
    assert lines["all-failed"].startswith("**Nothing could be judged**")
    assert "compiled kernel uses more (`registers`)" in lines["static-only"]


def test_forty_regressions_with_one_trigger_are_one_row() -> None:
    above = render(facts_of(samples.forty_regressions())).partition("<details>")[0]
    assert above.count(samples.ODD) == 3  # the verdict, the row, the command
    assert above.count("\n| ") == 2, above


def test_five_rows_are_shown_and_the_others_folded() -> None:
    body = render(facts_of(samples.five_thousand()))
    above, _, below = body.partition("<details>")
    assert above.count("| slower |") == 5
    assert "5 more rows below." in above
    assert below.count("| slower |") == 5
    assert re.search(r"… and \d+ more, in the report\.", below)


def test_a_comment_that_told_a_regression_says_that_it_is_gone() -> None:
    facts = facts_of(samples.clean())
    again = render(facts, before="adverse")
    assert again.startswith("**Recovered.** **No regression** in 12 cases")
    assert marker_state(again) == "recovered"
    assert render(facts, before="recovered") == again
    assert not render(facts, before="clean").startswith("**Recovered")
    assert not render(facts_of(samples.all_failed()), before="adverse").startswith("**Recovered")
    nothing = samples.report([])
    assert not render(facts_of(nothing), before="adverse").startswith("**Recovered")
    back = render(facts_of({**nothing, "unchanged": True}), before="adverse")
    assert back.startswith("**Recovered.** **Nothing to measure**")
    assert facts_of(samples.one_regression() | {"unchanged": True}).state == "adverse", "what was measured counts"


def test_a_case_that_could_not_have_been_seen_is_told() -> None:
    assert "Could not have seen changes under 2.1 %" in render(facts_of(samples.clean()))
    assert "Could not have seen changes under 16.0 %" in render(facts_of(samples.ambiguous()))


def test_figures_of_strangers_are_called_that() -> None:
    assert "produced by the pull request's own code" in render(facts_of(samples.clean()), foreign=True)


def test_the_marker_counts_only_at_the_end() -> None:
    body = render(facts_of(samples.clean()))
    assert marker_state(body) == "clean"
    assert marker_state(f"> {body}\nI do not agree") is None
    assert marker_state(None) is None


def test_a_title_is_short_and_plain() -> None:
    for make in samples.GOLDEN.values():
        text = title(facts_of(make()))
        assert 0 < len(text) <= 200 and "\n" not in text and "**" not in text


texts = st.one_of(
    st.sampled_from(samples.HOSTILE), st.text(max_size=60), st.text("`|\\<>@#*_[]()!~$&-= \n", max_size=30)
)
ratios = st.one_of(st.none(), st.floats(1e-3, 1e3))
statuses = st.sampled_from([s.value for s in Status])
changes: Any = st.builds(
    Change, label=texts, metric=texts, ratio=ratios, low=ratios, high=ratios, base_status=statuses,
    head_status=statuses, detail=texts, lost_s=st.floats(0, 10), terms=texts,
)  # fmt: skip
few: Any = st.lists(changes, max_size=4).map(tuple)
count = st.integers(0, 99)
groups: Any = st.builds(
    Group, kind=st.sampled_from(["slower", "more", "status", "gone"]), metric=texts,
    trigger=st.one_of(st.none(), texts), changes=few, effect=ratios, low=ratios, high=ratios, hit=count, inside=count,
    hit_outside=st.integers(0, 9), outside=st.integers(0, 9), confirmed=st.booleans(),
    alternatives=st.lists(texts, max_size=3).map(tuple), incident=st.from_regex(r"[0-9a-f]{8}", fullmatch=True) | texts,
)  # fmt: skip
any_facts: Any = st.builds(
    Facts, base=texts, head=texts, cases=st.integers(0, 9999), judged=st.integers(0, 9999),
    groups=st.lists(groups, max_size=7).map(tuple), faster=few, unsettled=few, failed=few,
    unsupported=st.integers(0, 9), left_out=st.integers(0, 9), unaffected=st.integers(0, 9),
    left_out_kinds=st.lists(st.tuples(texts, st.integers(1, 9)), max_size=2).map(tuple),
    brought_by=st.lists(texts, max_size=2).map(tuple),
    unchanged=st.booleans(), known=st.lists(texts, max_size=3).map(tuple),
    smallest_detectable=st.one_of(st.none(), st.floats(0, 20)),
    command=st.sampled_from(["", "attnwatch compare --base a --head b --suite full"]),
    notes=st.lists(texts, max_size=3).map(tuple),
)  # fmt: skip


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_facts, st.sampled_from([None, "adverse", "clean", "recovered"]), st.booleans())
def test_any_facts_make_a_sound_page(facts: Facts, before: str | None, foreign: bool) -> None:
    body = render(facts, before=before, foreign=foreign)
    check_page(body)
    assert render(facts, before=before, foreign=foreign) == body
    assert "\n" not in title(facts)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 400), st.integers(0, 30), st.sampled_from(["\U0001f680", "|", "`", "\u202e", "a"]))
def test_any_size_stays_under_the_limit(cases: int, triggers: int, char: str) -> None:
    many = tuple(Change(label=char * 500, ratio=1.5, terms=char * 5000) for _ in range(cases))
    one = Group("slower", "latency_s", char * 5000, many, 1.5, 1.4, 1.6, 3, 3, alternatives=(char * 900,) * 20)
    facts = Facts(char * 900, char * 900, cases, cases, (one,) * triggers, many, many, many, notes=(char * 900,) * 60)
    body = render(facts)
    check_page(body)
