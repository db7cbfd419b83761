"""Read models of screens, against what was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from db import screens
from db.engine import Store, open_store
from db.health import unstable_cases
from db.queries import incidents
from db.repository import IncidentRecord, RegressionRecord, set_owner, triage, upsert_incident
from harness.ingest import ingest_bundle
from harness.model import Case, Environment, Machine, Status, TriageState, Value, VerdictKind

from .conftest import Fresh
from .factory import DAY, MACHINE, START, make_case, make_measurement, make_run, write_run

CASES = [make_case(i, ("sdpa_math", "segmented")[i % 2]) for i in range(4)]
OTHER = Machine("cuda", "Test GPU")


def put(store: Store, folder: Path, number: int, values: list[float | Status | None], **changes: Any) -> str:
    run = make_run(number, **changes)
    made = [
        make_measurement(c, v, at=run.started_at)
        if isinstance(v, float)
        else make_measurement(c, status=v, at=run.started_at, discarded={"preempted": 2})
        for c, v in zip(CASES, values, strict=True)
        if v is not None
    ]
    path = folder / f"{run.id}.jsonl"
    ingest_bundle(store, write_run(path, run, made))
    return run.id


def report(store: Store, name: str, cases: list[Case], state: TriageState = TriageState.NEW, **changes: Any) -> None:
    fields = {"title": f"title of {name}", "trigger_text": "kv_len == 1", "machine": MACHINE.fingerprint, **changes}
    rows = [RegressionRecord(c.key, "latency_s", VerdictKind.SLOWER, TriageState.CONFIRMED, ratio=1.5) for c in cases]
    upsert_incident(store, IncidentRecord(id=name, state=state, **fields), rows, at=START + DAY * len(name))


@pytest.fixture
def store(fresh: Fresh, tmp_path: Path) -> Iterator[Store]:
    made = fresh()
    put(made, tmp_path, 0, [1.0, 2.0, 3.0, 4.0])
    put(made, tmp_path, 1, [1.1, 2.0, Status.CRASHED, None])
    put(made, tmp_path, 2, [1.0, 4.0, 3.0, None])
    yield made
    made.close()


def test_the_mark_changes_with_every_kind_of_write(store: Store, tmp_path: Path) -> None:
    seen = {screens.mark(store)}

    def moved() -> bool:
        before = len(seen)
        seen.add(screens.mark(store))
        return len(seen) > before

    assert not moved()
    put(store, tmp_path, 3, [1.0, 1.0, 1.0, 1.0])
    assert moved()
    report(store, "i", CASES[:1])
    assert moved()
    triage(store, "i", TriageState.ACKNOWLEDGED, "seen", "someone")
    assert moved()
    set_owner(store, "i", "team-kernels")
    assert moved(), "an owner leaves no event"


def test_incidents_are_filtered_and_the_urgent_come_first(store: Store) -> None:
    report(store, "old", CASES[:1], TriageState.DISMISSED)
    report(store, "a_new", CASES[1:2], trigger_text="kv_len % 128 == 1")
    report(store, "waiting", CASES[:1], TriageState.SUSPECT, owner="Ada")
    page = screens.incident_page(store)
    assert [r.id for r in page.rows] == ["a_new", "waiting", "old"]
    assert page.total == 3

    def ids(**filters: Any) -> list[str]:
        return [r.id for r in screens.incident_page(store, **filters).rows]

    assert ids(backend="segmented") == ["a_new"]
    assert ids(states=[TriageState.DISMISSED]) == ["old"]
    assert ids(machine="nothing") == []
    assert ids(words="ADA") == ["waiting"]
    assert ids(words="kv_len 128") == ["a_new"], "every word must occur"
    assert ids(words="100%") == [], "a per cent sign is no wildcard"
    assert ids(words="a_n") == ["a_new"]
    assert ids(words="axn") == []
    second = screens.incident_page(store, limit=1, offset=1)
    assert ([r.id for r in second.rows], second.total) == (["waiting"], 3)


def test_coverage_counts_statuses_and_what_is_missing(store: Store, tmp_path: Path) -> None:
    put(store, tmp_path, 9, [1.0, None, None, None], name="on-another", machine=OTHER)
    found = {c.machine: c for c in screens.coverage(store)}
    here = found[MACHINE.fingerprint]
    assert (here.run, here.counts, here.missing) == ("run-002", {"ok": 3}, 0)
    assert found[OTHER.fingerprint].counts == {"ok": 1}
    put(store, tmp_path, 4, [1.0, None, None, None])
    newest = next(c for c in screens.coverage(store) if c.machine == MACHINE.fingerprint)
    assert (newest.run, newest.missing) == ("run-004", 2)


def test_holdings_list_choices_and_tell_a_demonstration(store: Store, tmp_path: Path) -> None:
    report(store, "i", CASES[1:2])
    held = screens.holdings(store)
    assert (held.runs, held.incidents, held.incident_backends) == (3, {"new": 1}, ["segmented"])
    assert held.backends == ["sdpa_math", "segmented"]
    assert held.incident_machines == [(MACHINE.fingerprint, MACHINE.device_model)]
    assert not held.demo
    put(store, tmp_path, 5, [1.0, 1.0, 1.0, 1.0], options={"demo": True})
    assert screens.holdings(store).demo


def test_pairs_have_both_sides_or_say_which_is_missing(store: Store) -> None:
    found = {p.case.key: p for p in screens.pairs(store, "latency_s", "run-000", "run-001")}
    assert len(found) == 4
    assert found[CASES[0].key].ratio == pytest.approx(1.1)
    crashed = found[CASES[2].key]
    assert (crashed.ratio, crashed.base_status, crashed.head_status) == (None, "ok", "crashed")
    gone = found[CASES[3].key]
    assert (gone.head, gone.head_status, gone.base) == (None, "", Value(4.0, 3.96, 4.04, 3))
    assert screens.pairs(store, "latency_s", "run-000", "run-001", benchmarks=["other"]) == []


def test_case_values_are_paged_and_carry_what_was_asked(store: Store) -> None:
    found = screens.case_values(store, "run-001", ["latency_s"])
    assert [(x.status, sorted(x.values)) for x in found] == [("ok", ["latency_s"])] * 2 + [("crashed", [])]
    assert len(screens.case_values(store, "run-001", ["latency_s"], without=["crashed"])) == 2
    first = screens.case_values(store, "run-001", ["latency_s"], limit=1)
    assert [(x.case.key, x.values["latency_s"].value) for x in first] == [(CASES[0].key, 1.1)]
    assert screens.case_values(store, "nothing", ["latency_s"], limit=5) == []
    assert screens.benchmarks_of_run(store, "run-001") == {"prefill": 3}


def test_the_atlas_puts_what_moved_farthest_first(store: Store) -> None:
    page = screens.atlas(store, MACHINE.fingerprint, "latency_s")
    assert page.total == 4
    moved = page.rows[0]
    assert (moved.case.key, moved.newest, moved.level) == (CASES[1].key, 4.0, 2.0)
    assert moved.change == pytest.approx(1.0)
    alone = next(r for r in page.rows if r.case.key == CASES[3].key)
    assert (alone.level, alone.change) == (None, None), "seen once: nothing to compare with"
    report(store, "i", CASES[:1])
    changed = screens.atlas(store, MACHINE.fingerprint, "latency_s", changed_by=0.5)
    assert [(r.case.key, r.in_incident) for r in changed.rows] == [(CASES[1].key, False), (CASES[0].key, True)]
    assert screens.atlas(store, MACHINE.fingerprint, "latency_s", backend="segmented").total == 2
    assert screens.atlas(store, MACHINE.fingerprint, "latency_s", words="kv_len=129 segmented").total == 1
    assert screens.atlas(store, MACHINE.fingerprint, "latency_s", limit=1, offset=3).total == 4
    assert screens.atlas(store, "nothing", "latency_s").rows == []


def test_attempts_troubles_and_incidents_of_cases(store: Store) -> None:
    told = screens.attempt(store, "run-000", CASES[0].key)
    assert told is not None
    assert told.operators == ["aten::bmm", "aten::softmax"]
    assert screens.attempt(store, "run-000", "nothing") is None
    bad = screens.troubles(store, "run-001")
    assert [(t.status, t.discarded) for t in bad] == [("crashed", {"preempted": 2})]
    report(store, "i", CASES[:1])
    assert screens.incidents_of_cases(store, [c.key for c in CASES]) == {CASES[0].key: [("i", "new")]}
    assert incidents(store)[0].regressions == 1


def test_unstable_cases_are_those_of_incidents_too(store: Store) -> None:
    report(store, "i", CASES[:2])
    assert unstable_cases(store) == {c.key for c in CASES[:3]}, "the third ran, and crashed once"
    assert unstable_cases(store, runs=1) == set(), "neither happened since the newest run began"


def test_steps_are_where_the_environment_changed(store: Store, tmp_path: Path) -> None:
    assert screens.environment_steps(store, MACHINE.fingerprint) == [], "kernels alone are no step"
    upgraded = Environment(MACHINE, python="3.11", packages={"torch": "2.14.0"}, kernels_hash="k9")
    put(store, tmp_path, 6, [1.0, 1.0, 1.0, 1.0], environment=upgraded)
    steps = screens.environment_steps(store, MACHINE.fingerprint)
    assert [(s.run, s.changes) for s in steps] == [("run-006", ["package torch: 2.13.0 -> 2.14.0"])]


def test_the_atlas_reads_the_newest_runs_only(tmp_path: Path) -> None:
    """However long the history is: SQLite must not choose to walk all measurements."""
    with open_store(tmp_path / "x.db") as store:
        put(store, tmp_path, 0, [1.0, 2.0, 3.0, 4.0])
        asked: list[tuple[str, Any]] = []
        event.listen(
            store.engine, "before_cursor_execute", lambda c, cursor, sql, values, *_: asked.append((sql, values))
        )
        assert screens.atlas(store, MACHINE.fingerprint, "latency_s").total == 4
        with store.read() as connection:
            plan = [row[3] for sql, values in asked if sql.startswith(("SELECT", "WITH"))
                    for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)]  # fmt: skip
    assert sum("SEARCH measurement" in step for step in plan) == 1, "read once, and not joined with itself"
    assert not any("SCAN measurement" in step or "SCAN metric_value" in step for step in plan)
