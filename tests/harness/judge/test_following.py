"""From the case that was measured to the notice, and back, by one name."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from db.queries import incident, measurements_of_run
from db.repository import triage
from harness.cli.app import app
from harness.judge.following import EVIDENCE, follow
from harness.model import InputError, Status, TriageState
from harness.model.traces import span_id, trace_id
from harness.notices import events
from harness.policy import Policy
from tests.harness.judge.test_nights import SLOW, World, odd, slower
from tests.harness.judge.test_nights import world as world  # the fixture


def test_a_notice_names_the_trace_of_what_was_measured(world: World) -> None:
    world.cost = slower(lambda case, kernels, torch: odd(case) and kernels == "b")
    world.night("a")
    world.night("a")
    (found,) = world.night("b").new_confirmed
    detail = incident(world.store, found.id)
    assert detail is not None
    told = detail.incident.evidence[EVIDENCE]
    assert told == [f"{trace_id('run3')}-{span_id('run3', f.case.key, 1)}" for f in found.findings]
    assert len(set(told)) == len(SLOW)
    (notice,) = events(world.store, Policy(), 2e9, ())
    assert f"trace {told[0]}" in notice.text

    triage(world.store, found.id, TriageState.ACKNOWLEDGED, "looked at", "kernels")
    trail = follow(world.store, told[1])
    assert (trail.run.id, [m.attempt for m in trail.attempts]) == ("run3", [1])
    assert trail.attempts[0].case.key == found.findings[1].case.key
    (held,) = trail.incidents
    assert [e.to_state for e in held.events][-1] == "acknowledged"

    ended = CliRunner().invoke(app, ["follow", told[1], "--db", str(world.store.path), "--json"])
    plain = json.loads(ended.stdout)
    assert (plain["run"], plain["incidents"][0]["trigger"]) == ("run3", found.trigger)
    shown = CliRunner().invoke(app, ["follow", told[1], "--db", str(world.store.path)]).stdout
    assert "looked at" in shown and found.id in shown


def test_a_case_that_no_incident_holds_has_a_trace_too(world: World) -> None:
    def cost(case: object, kernels: str, torch: str) -> float | Status:
        return Status.CRASHED

    world.cost = cost
    world.night("a")
    m = measurements_of_run(world.store, "run1", superseded=True)[0]
    trail = follow(world.store, f"{trace_id('run1')}-{span_id('run1', m.case.key, m.attempt)}")
    assert [(a.attempt, a.status) for a in trail.attempts] == [(1, "crashed"), (2, "crashed")]
    assert trail.incidents == []


@pytest.mark.parametrize("text", ["", "x", "0" * 32, "0" * 32 + "-" + "1" * 16, "g" * 32 + "-" + "1" * 16])
def test_what_is_no_trace(world: World, text: str) -> None:
    world.night("a")
    with pytest.raises(InputError, match=r"trace .*(32 hex digits|holds no such run)"):
        follow(world.store, text)
    with pytest.raises(InputError, match="holds no such attempt"):
        follow(world.store, f"{trace_id('run1')}-{'1' * 16}")


def test_ids_have_the_forms_of_opentelemetry() -> None:
    name = "0123456789abcdef" * 2
    assert trace_id(name) == name
    assert len(trace_id("0" * 32)) == 32 and trace_id("0" * 32) != "0" * 32
    assert len(span_id(name)) == 16 and span_id(name, "k", 1) != span_id(name, "k", 2)
