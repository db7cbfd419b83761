"""From the case to the alert, growth and cause, on the page of an incident that a judge stored."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import trail
from db.engine import open_store
from db.incidents import TriageRow
from db.queries import incident, incidents
from db.repository import triage
from harness.judge.following import follow
from harness.model import Case, TriageState
from harness.model.traces import span_id, trace_id
from tests.harness.judge.test_nights import World, odd, slower
from tests.harness.judge.test_nights import world as world  # the fixture
from tests.harness.static.samples import grid, night, where

from . import stores
from .test_facts import RUN, case, detail, regression
from .test_views import app, shown


def opened(path: Path, monkeypatch: pytest.MonkeyPatch, **query: str) -> tuple[AppTest, str]:
    """The page of the incident, and its text as a reader sees it."""
    monkeypatch.setenv("ATTNWATCH_DB", str(path))
    at = app("incident", **query)
    assert not at.exception, [e.value for e in at.exception]
    return at, html.unescape(shown(at))


def named(at: AppTest, column: str) -> Any:
    """The table that has this column."""
    (found,) = [d.value for d in at.dataframe if column in d.value.columns]
    return found


def test_growth_is_told_as_exponents_and_kept_as_it_is_where_it_reads_otherwise() -> None:
    told = ["seq_len^1.02 -> seq_len^1.99 [1.95, 2.04]", "a^1.00 -> b^2.00 [1, 3]", 3]
    assert trail.growths({"growth": told}) == [
        "seq_len: exponent 1.0 -> 2.0, 95 % interval [1.95, 2.04]", "a^1.00 -> b^2.00 [1, 3]",
    ]  # fmt: skip
    assert trail.growths({}) == trail.growths({"growth": None}) == []


def test_causes_are_what_the_findings_came_with() -> None:
    how = ["compiled code, exact; came with triton 3.7.1 -> 3.8.0", "measured again", None]
    assert trail.causes({"how": how}) == ["triton 3.7.1 -> 3.8.0"]
    assert trail.causes({"how": ["measured again"]}) == trail.causes({}) == []


def test_a_trace_finds_its_case_and_attempt_whatever_else_stands_beside_it() -> None:
    cases = [case(f"k{i}", kv_len=i) for i in range(4)]
    mine = [f"{trace_id('r')}-{span_id('r', c.key, n)}" for c, n in ((cases[2], 1), (cases[0], 2))]
    elsewhere = f"{trace_id('gone')}-{span_id('gone', 'k0', 1)}"
    held = detail([regression(c) for c in cases], traces=[*mine, elsewhere, "no trace; rm -rf", 7])
    rows = trail.measured(held, [replace(RUN, id="other"), RUN])
    assert [(r["trace"], r["case"], r["attempt"], r["revision"]) for r in rows] == [
        (mine[0], "kv_len=2", 1, "v"), (mine[1], "kv_len=0", 2, "v"), (elsewhere, "", None, ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "evidence", "was", "words"),
    [
        ("new", {}, None, "everybody who takes notices, and names no trace"),
        ("new", {"shadow": True}, None, "nobody: it was found in shadow"),
        ("suspect", {}, None, "nobody: it was never new"),
        ("dismissed", {}, "suspect", "nobody: it was never new"),
        ("fixed", {}, "new", "while it was new (it is fixed now)"),
    ],
)
def test_who_is_told(state: str, evidence: dict[str, Any], was: str | None, words: str) -> None:
    held = detail([regression(case("k"))], **evidence)
    events = [TriageRow(1.0, was, state, "because", "somebody")] if was else []
    held = replace(held, incident=replace(held.incident, state=state), events=events)
    said = dict(trail.steps(held, RUN))
    assert words in said["Told"]
    assert ("because" in said["Looked after"]) == bool(was)


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ({}, "which policy is not recorded"),
        ({"policy": "", "severity": "high"}, "with no policy file named, with severity high"),
        ({"policy": "abc123"}, "by the policy of version abc123"),
    ],
)
def test_which_policy_let_it_through(evidence: dict[str, Any], words: str) -> None:
    assert words in dict(trail.steps(detail([], **evidence), None))["Let through"]


@pytest.mark.slow
def test_the_trail_of_a_judged_night(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.cost = slower(lambda c, kernels, torch: odd(c) and kernels == "b")
    world.night("a")
    world.night("a")
    (found,) = world.night("b").new_confirmed
    triage(world.store, found.id, TriageState.ACKNOWLEDGED, "looked at", "kernels")
    at, text = opened(world.folder / "n.db", monkeypatch, incident=found.id)
    stored = incident(world.store, found.id)
    assert stored is not None
    rows = named(at, "trace")
    assert list(rows["trace"]) == stored.incident.evidence["traces"] and len(rows) == 4
    for trace, label, attempt in zip(rows["trace"], rows["case"], rows["attempt"], strict=True):
        told = follow(world.store, trace)
        assert told.attempts[int(attempt) - 1].case.label == label, "as the command tells it"
    assert f"attnwatch follow {rows['trace'][0]}" in [c.value for c in at.code]
    assert "with no policy file named" in text
    assert "while it was new (it is acknowledged now)" in text
    assert "acknowledged by kernels" in text and "Grows faster" not in text and "new compiler" not in text


def test_growth_of_a_judged_night(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(c: Case, kernels: str) -> int:
        n = int(c.workload.params["kv_len"])  # type: ignore[arg-type]
        return n * n if kernels == "b" and c.backend == "segmented" else 4 * n

    world.calls = calls
    world.night("a")
    world.night("a")
    (found,) = world.night("b").new_confirmed
    _, text = opened(world.folder / "n.db", monkeypatch, incident=found.id)
    assert "by nobody since" in text
    assert "Grows faster:** kv_len: exponent 1.0 -> 2.0, 95 % interval [" in text


def test_a_new_compiler_is_the_cause_and_no_trigger_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path / "a.db") as store:
        night(store, tmp_path, 1, grid())
        night(store, tmp_path, 2, where(grid(triton_version="3.8.0"), 128, spill_bytes=900))
        (found,) = incidents(store)
    at, text = opened(tmp_path / "a.db", monkeypatch, incident=found.id)
    assert "Came with a new compiler:** triton 3.7.1 -> 3.8.0" in text
    assert "No trigger was looked for" in text and "better than chance" not in text
    assert len(named(at, "trace")) == 12


def test_an_older_incident_without_traces_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    for i, name in enumerate(("base", "head")):
        stores.run(path, name, stores.grid(4), at=stores.NOW + i * 86400)
    stores.incident(path, "old", stores.grid(4))
    at, text = opened(path, monkeypatch)
    assert "No trace is recorded" in text and "which policy is not recorded" in text
    assert not any(c.value.startswith("attnwatch follow") for c in at.code)


@pytest.mark.slow
def test_hostile_evidence_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, h = tmp_path / "a.db", stores.HOSTILE
    cases = [stores._named(h), *stores.grid(4)]
    for i, name in enumerate(("base", "head")):
        stores.run(path, name, cases, at=stores.NOW + i * 86400, text=h)
    real = f"{trace_id('head')}-{span_id('head', cases[0].key, 1)}"
    evidence = {
        "how": [f"x; came with {h}"], "growth": [h], "traces": [h, real, f"{real}; {h}"], "policy": h, "severity": h,
    }  # fmt: skip
    stores.incident(path, "bad", cases, text=h, trigger_text="", evidence=evidence)
    at, text = opened(path, monkeypatch)
    assert list(named(at, "trace")["trace"]) == [real], "only what has the form of a trace is offered to a shell"
    assert "Came with a new compiler:** <img src=x" in text and "Grows faster:** <img src=x" in text
    assert "by the policy of version <img src=x" in text
    for element in (*at.markdown, *at.caption, *at.info, *at.warning, *at.success):
        assert "<img" not in element.value and ":red[" not in element.value and "](javascript" not in element.value
    assert all("<img" not in c.value for c in at.code if "follow" in c.value)
