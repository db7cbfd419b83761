"""Incidents: stored once, brought up to date, moved only as allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.engine import Store
from db.queries import incident, incidents
from db.repository import (
    TRANSITIONS,
    IncidentRecord,
    RegressionRecord,
    set_owner,
    triage,
    upsert_incident,
)
from harness.ingest import ingest_bundle
from harness.model import InputError, TriageState, VerdictKind

from .conftest import Fresh
from .factory import MACHINE, dump, make_case, make_measurement, make_run, write_run

S = TriageState


@pytest.fixture
def store(fresh: Fresh, tmp_path: Path) -> Iterator[Store]:
    """A store with two runs."""
    made = fresh()
    for number in range(2):
        measurements = [make_measurement(make_case(i), at=float(i)) for i in range(3)]
        ingest_bundle(made, write_run(tmp_path / f"{number}.jsonl", make_run(number), measurements))
    yield made
    made.close()


def record(**changes: object) -> IncidentRecord:
    fields: dict[str, object] = {
        "id": "i1a2",
        "title": "prefill slower",
        "trigger_text": "kv_len % 128 == 1",
        "machine": MACHINE.fingerprint,
        "first_bad_revision": "rev1",
        "last_good_revision": "rev0",
        "effect": 1.2,
        "effect_low": 1.1,
        "effect_high": 1.3,
        "evidence": {"inside": 3, "text": "\u2265 3"},
    }
    return IncidentRecord(**{**fields, **changes})  # type: ignore[arg-type]


def regression(i: int, ratio: float = 1.2, **changes: object) -> RegressionRecord:
    fields: dict[str, object] = {
        "case_key": make_case(i).key,
        "metric": "latency_s",
        "verdict": VerdictKind.SLOWER,
        "state": S.CONFIRMED,
        "base_run": "run-000",
        "head_run": "run-001",
        "ratio": ratio,
        "ratio_low": ratio - 0.05,
        "ratio_high": ratio + 0.05,
        "p_value": 1e-4,
        "smallest_detectable": 1.03,
    }
    return RegressionRecord(**{**fields, **changes})  # type: ignore[arg-type]


def test_incident_comes_back(store: Store) -> None:
    assert upsert_incident(store, record(), [regression(0, 1.2), regression(1, 1.4)], at=100.0)
    found = incident(store, "i1a2")
    assert found is not None
    head = found.incident
    assert (head.title, head.state, head.machine, head.regressions) == (
        "prefill slower",
        "new",
        MACHINE.fingerprint,
        2,
    )
    assert (head.first_bad_revision, head.last_good_revision, head.effect_high) == ("rev1", "rev0", 1.3)
    assert (head.opened_at, head.updated_at, head.evidence) == (100.0, 100.0, {"inside": 3, "text": "\u2265 3"})
    assert [(r.case.key, r.ratio, r.base_run, r.head_run) for r in found.regressions] == [
        (make_case(1).key, 1.4, "run-000", "run-001"),
        (make_case(0).key, 1.2, "run-000", "run-001"),
    ]
    assert [(e.from_state, e.to_state, e.at) for e in found.events] == [(None, "new", 100.0)]
    assert incidents(store) == [head]


def test_update_keeps_what_people_decided(store: Store) -> None:
    upsert_incident(store, record(), [regression(0)], at=100.0)
    triage(store, "i1a2", S.ACKNOWLEDGED, "looking", "ann", at=110.0)
    set_owner(store, "i1a2", "ann")
    assert not upsert_incident(
        store,
        record(title="changed", effect=1.5, state=S.NEW, owner="judge"),
        [regression(0, 1.5), regression(2)],
        at=120.0,
    )
    found = incident(store, "i1a2")
    assert found is not None
    head = found.incident
    assert (head.title, head.effect, head.state, head.owner) == ("changed", 1.5, "acknowledged", "ann")
    assert (head.opened_at, head.updated_at) == (100.0, 120.0)
    assert [r.ratio for r in found.regressions] == [1.5, 1.2]


def test_same_upsert_twice_changes_nothing(store: Store) -> None:
    upsert_incident(store, record(), [regression(0)], at=100.0)
    before = dump(store)
    upsert_incident(store, record(), [regression(0)], at=100.0)
    assert dump(store) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"case_key": "none"}, "case 'none' is not in the store"),
        ({"metric": "none"}, "metric 'none' is not in the store"),
        ({"head_run": "none"}, "run 'none' is not in the store"),
    ],
)
def test_unknown_parts_change_nothing(store: Store, changes: dict[str, object], message: str) -> None:
    before = dump(store)
    with pytest.raises(InputError, match=message):
        upsert_incident(store, record(), [regression(0), regression(1, **changes)])
    with pytest.raises(InputError, match="revision 'none'"):
        upsert_incident(store, record(first_bad_revision="none"), [])
    assert dump(store) == before


@pytest.mark.parametrize("before", list(S))
@pytest.mark.parametrize("after", list(S))
def test_only_allowed_steps(store: Store, before: TriageState, after: TriageState) -> None:
    upsert_incident(store, record(state=before), [], at=100.0)
    if after in TRANSITIONS[before]:
        assert triage(store, "i1a2", after, "because", "bob", at=200.0) is before
    else:
        with pytest.raises(InputError, match=f"is {before.value} and cannot become {after.value}; it can become: "):
            triage(store, "i1a2", after, "because", "bob", at=200.0)
    found = incident(store, "i1a2")
    assert found is not None
    allowed = after in TRANSITIONS[before]
    assert found.incident.state == (after if allowed else before).value
    assert [(e.to_state, e.reason, e.author) for e in found.events[1:]] == (
        [(after.value, "because", "bob")] if allowed else []
    )


def test_triage_needs_an_incident_and_a_reason(store: Store) -> None:
    with pytest.raises(InputError, match=f"no incident 'zzz' in {re.escape(store.name)}"):
        triage(store, "zzz", S.FIXED, "because", "bob")
    with pytest.raises(InputError, match="no incident 'zzz'"):
        set_owner(store, "zzz", "bob")
    upsert_incident(store, record(), [])
    with pytest.raises(InputError, match="needs a reason"):
        triage(store, "i1a2", S.FIXED, "  ", "bob")


def test_lists_by_state_and_machine(store: Store) -> None:
    for i, state in enumerate((S.NEW, S.CONFIRMED, S.FIXED)):
        upsert_incident(store, record(id=f"i{i}", state=state), [], at=float(i))
    assert [x.id for x in incidents(store)] == ["i2", "i1", "i0"]
    assert [x.id for x in incidents(store, states=["new", "confirmed"])] == ["i1", "i0"]
    assert [x.id for x in incidents(store, machine=MACHINE.fingerprint, limit=1)] == ["i2"]
    assert incidents(store, machine="none") == []
    assert incident(store, "none") is None


def test_every_state_has_a_way_on() -> None:
    assert set(TRANSITIONS) == set(S)
    for before, after in TRANSITIONS.items():
        assert after
        assert before not in after
