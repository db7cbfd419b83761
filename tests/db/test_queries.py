"""What the read models answer, against what was written."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from db import queries
from db.engine import Store
from harness.ingest import ingest_bundle
from harness.model import Machine, Reason, Status

from .conftest import Fresh
from .factory import DAY, MACHINE, START, make_case, make_measurement, make_run, write_run

OTHER = Machine("cuda", "Test GPU")
CASES = [make_case(i) for i in range(4)]
#: latency of (run, case); text is a status, None is not measured. Runs are ingested in an order of their own.
TABLE: dict[int, list[float | str | None]] = {
    0: [1.0, 2.0, None, "crashed"],
    1: [1.1, "wrong", 3.1, None],
    2: [1.2, 2.2, 3.2, None],
    3: [1.3, 2.3, 3.3, 4.3],
}


@pytest.fixture(scope="module")
def store(fresh: Fresh, tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder: Path = tmp_path_factory.mktemp("queries")
    store = fresh()
    for number in (2, 0, 3, 1):
        made = [
            make_measurement(case, value, at=START + i)
            if isinstance(value, float)
            else make_measurement(case, status=Status(value), at=START + i)
            for i, (case, value) in enumerate(zip(CASES, TABLE[number], strict=True))
            if value is not None
        ]
        reason = Reason.PULL_REQUEST if number == 2 else Reason.NIGHTLY
        run = make_run(number, reason=reason)
        ingest_bundle(store, write_run(folder / f"{number}.jsonl", run, made, end=number != 3))
    gpu = make_run(9, machine=OTHER, suite="nightly")
    made = [make_measurement(CASES[0], status=Status.CRASHED), make_measurement(CASES[0], 0.5, attempt=2, at=START + 1)]
    ingest_bundle(store, write_run(folder / "gpu.jsonl", gpu, made))
    return store


def test_runs(store: Store) -> None:
    assert [r.id for r in queries.runs(store)] == ["run-009", "run-003", "run-002", "run-001", "run-000"]
    assert [r.id for r in queries.runs(store, machine=MACHINE.fingerprint, limit=2)] == ["run-003", "run-002"]
    assert [r.id for r in queries.runs(store, suite="nightly")] == ["run-009"]
    assert [r.id for r in queries.runs(store, reasons=["pull_request"])] == ["run-002"]
    assert [r.id for r in queries.runs(store, machine=MACHINE.fingerprint, complete_only=True, limit=1)] == ["run-002"]
    assert queries.runs(store, machine="none") == []


def test_latest_run(store: Store) -> None:
    for machine, suite, expected in (
        (None, None, "run-009"),
        (MACHINE.fingerprint, None, "run-003"),
        (None, "smoke", "run-003"),
        (MACHINE.fingerprint, "smoke", "run-003"),
    ):
        found = queries.latest_run(store, machine, suite)
        assert found is not None
        assert found.id == expected
    assert queries.latest_run(store, OTHER.fingerprint, "smoke") is None
    assert queries.run(store, "nowhere") is None


def test_machines_and_freshness(store: Store) -> None:
    assert [(m.fingerprint, m.runs) for m in queries.machines(store)] == [
        (OTHER.fingerprint, 1),
        (MACHINE.fingerprint, 4),
    ]
    fresh = queries.freshness(store)
    assert (fresh.last_finished_run, fresh.last_finished_at) == ("run-009", START + 9 * DAY + 60)
    assert (fresh.last_started_run, fresh.last_started_at) == ("run-009", START + 9 * DAY)


def test_freshness_of_an_empty_store(fresh: Fresh) -> None:
    with fresh() as empty:
        assert queries.freshness(empty) == queries.Freshness(None, None, None, None)
        assert queries.latest_run(empty) is None
        found = queries.history(empty, "none", "latency_s")
        assert (found.value.shape, found.cases, found.run_ids) == ((0, 0), [], [])
        assert queries.series(empty, "latency_s", "none") == {}


def test_statuses(store: Store) -> None:
    assert queries.counts_by_status(store, ["run-000", "run-009", "none"]) == {
        "run-000": {"ok": 2, "crashed": 1},
        "run-009": {"ok": 1},
        "none": {},
    }
    assert queries.statuses_of_run(store, "run-001") == {
        CASES[0].key: "ok",
        CASES[1].key: "wrong",
        CASES[2].key: "ok",
    }


def test_measurements_of_run(store: Store) -> None:
    rows = queries.measurements_of_run(store, "run-003")
    assert [r.case.key for r in rows] == [c.key for c in CASES]
    assert [r.metrics["latency_s"].value for r in rows] == [1.3, 2.3, 3.3, 4.3]
    assert [r.case.columns for r in rows] == [c.columns for c in CASES]
    both = queries.measurements_of_run(store, "run-009", superseded=True)
    assert [(r.status, r.superseded, r.metrics == {}) for r in both] == [("crashed", True, True), ("ok", False, False)]


def test_series(store: Store) -> None:
    found = queries.series(store, "latency_s", MACHINE.fingerprint, [CASES[1].key, CASES[3].key])
    assert set(found) == {CASES[1].key, CASES[3].key}
    assert [(p.run_id, p.value, p.status) for p in found[CASES[1].key]] == [
        ("run-000", 2.0, "ok"),
        ("run-001", None, "wrong"),
        ("run-002", 2.2, "ok"),
        ("run-003", 2.3, "ok"),
    ]
    point = found[CASES[3].key][-1]
    assert (point.revision, point.started_at, point.n) == ("rev3", START + 3 * DAY, 3)
    assert (point.low, point.high) == (4.3 * 0.99, 4.3 * 1.01)
    assert queries.samples(store, point.measurement_id, "latency_s")["samples"]["latency_s"][0] == 4.3
    early = queries.series(store, "latency_s", MACHINE.fingerprint, until_run="run-001")
    assert {k: [p.run_id for p in v] for k, v in early.items()} == {
        CASES[0].key: ["run-000", "run-001"],
        CASES[1].key: ["run-000", "run-001"],
        CASES[2].key: ["run-001"],
        CASES[3].key: ["run-000"],
    }


@pytest.mark.parametrize("until", [None, "run-003", "run-002", "run-000"])
def test_history_is_the_table(store: Store, until: str | None) -> None:
    found = queries.history(store, MACHINE.fingerprint, "latency_s", until_run=until)
    numbers = [n for n in range(4) if until is None or n <= int(until[-1])]
    assert found.run_ids == [f"run-00{n}" for n in numbers]
    assert found.revisions == [f"rev{n}" for n in numbers]
    assert found.started_at.tolist() == [START + n * DAY for n in numbers]
    for j, number in enumerate(numbers):
        for case, value in zip(CASES, TABLE[number], strict=True):
            if not any(TABLE[n][CASES.index(case)] is not None for n in numbers):
                with pytest.raises(KeyError):
                    found.row(case.key)
                continue
            i = found.row(case.key)
            status = found.status[i, j]
            if value is None:
                assert status == -1
                assert found.measurement_id[i, j] == 0
            else:
                assert found.statuses[status] == ("ok" if isinstance(value, float) else value)
            if isinstance(value, float):
                assert found.value[i, j] == value
                assert (found.low[i, j], found.high[i, j], found.n[i, j]) == (value * 0.99, value * 1.01, 3)
            else:
                assert np.isnan(found.value[i, j])
                assert found.n[i, j] == 0


def test_history_of_some_runs(store: Store) -> None:
    machine = MACHINE.fingerprint
    assert queries.history(store, machine, "latency_s", max_runs=2).run_ids == ["run-002", "run-003"]
    nightly = queries.history(store, machine, "latency_s", reasons=["nightly"])
    assert nightly.run_ids == ["run-000", "run-001", "run-003"]
    kept = queries.history(store, machine, "latency_s", reasons=["nightly"], until_run="run-002")
    assert kept.run_ids == ["run-000", "run-001", "run-002"]
    with pytest.raises(KeyError):
        queries.history(store, machine, "latency_s", until_run="none")
    unknown = queries.history(store, machine, "no_such_metric")
    assert np.isnan(unknown.value).all()
    assert (unknown.status >= 0).sum() == 13


def test_history_and_series_agree(fresh: Fresh, tmp_path: Path) -> None:
    rng = random.Random(3)
    made = [make_case(i) for i in range(7)]
    with fresh() as store:
        for number in rng.sample(range(9), 9):
            run = make_run(number, started_at=START + DAY * (number // 2))  # some start at the same time
            chosen = rng.sample(made, rng.randrange(8))
            ms = [
                make_measurement(c, rng.random()) if rng.random() < 0.7 else make_measurement(c, status=Status.INVALID)
                for c in chosen
            ]
            ingest_bundle(store, write_run(tmp_path / f"{number}.jsonl", run, ms))
        for until in (None, "run-004", "run-005"):
            h = queries.history(store, MACHINE.fingerprint, "latency_s", until_run=until)
            s = queries.series(store, "latency_s", MACHINE.fingerprint, until_run=until)
            assert {c.key for c in h.cases} == set(s)
            for i, case in enumerate(h.cases):
                points = [
                    (h.run_ids[j], h.statuses[h.status[i, j]], float(h.value[i, j]))
                    for j in range(len(h.run_ids))
                    if h.status[i, j] >= 0
                ]
                expected = [(p.run_id, p.status, np.nan if p.value is None else p.value) for p in s[case.key]]
                assert repr(points) == repr([(a, b, float(c)) for a, b, c in expected])


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("SELECT case_id, id, status FROM measurement WHERE run_id = 1 AND superseded = 0", "ix_measurement_current"),
        ("SELECT status, count(*) FROM measurement WHERE run_id = 1 AND superseded = 0 GROUP BY status", "COVERING"),
        ("SELECT id FROM measurement WHERE case_id = 1", "ix_measurement_case_id_run_id"),
        ("SELECT id FROM run WHERE machine_id = 1 ORDER BY started_at DESC LIMIT 1", "ix_run_machine_id_started_at"),
        ("SELECT value FROM metric_value WHERE measurement_id = 1 AND metric_id = 1", "PRIMARY KEY"),
    ],
)
def test_indexes_serve_the_queries(store: Store, query: str, index: str) -> None:
    if store.path is None:
        pytest.skip("plans of SQLite; PostgreSQL makes its own from statistics")
    with store.read() as connection:
        plan = " ".join(str(row) for row in connection.execute(text(f"EXPLAIN QUERY PLAN {query}")))
    assert index in plan
    assert "TEMP B-TREE FOR ORDER BY" not in plan
