"""When cases were last measured and how long they took."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from db.coverage import SuiteRun, already_measured, runs_alike, suite_starts
from db.health import unstable_cases
from db.queries import last_measured, mean_durations
from harness.ingest import ingest_bundle
from harness.model import Machine, Reason, Revision, Status

from .conftest import Fresh
from .factory import DAY, MACHINE, START, make_case, make_measurement, make_run, write_run

OTHER = Machine("cuda", "Other")


def test_left_out_cases_do_not_count_as_measured(fresh: Fresh, tmp_path: Path) -> None:
    a, b, c, d = (make_case(i) for i in range(4))
    bundle = tmp_path / "b.jsonl"
    write_run(bundle, make_run(0), [make_measurement(a, at=10.0), make_measurement(b, at=11.0, status=Status.CRASHED)])
    late = [
        make_measurement(a, at=20.0, duration_s=0.75),
        make_measurement(b, at=21.0, status=Status.DESELECTED),
        make_measurement(c, at=22.0, status=Status.DESELECTED),
    ]
    write_run(bundle, make_run(1), late)
    write_run(bundle, make_run(2, machine=OTHER), [make_measurement(d, at=30.0), make_measurement(b, at=31.0)])
    with fresh() as store:
        ingest_bundle(store, bundle)
        # A failure is a measuring too, or a case that always fails would be tried first every night.
        assert last_measured(store, MACHINE.fingerprint) == {a.key: 20.0, b.key: 11.0}
        assert last_measured(store) == {a.key: 20.0, b.key: 31.0, d.key: 30.0}
        assert mean_durations(store, MACHINE.fingerprint)[a.key] == pytest.approx(0.5)
        assert last_measured(store, "no such machine") == {}


def test_runs_alike_share_machine_suite_and_reason(fresh: Fresh, tmp_path: Path) -> None:
    bundle = tmp_path / "b.jsonl"
    write_run(bundle, make_run(0), [make_measurement(make_case())])
    write_run(bundle, make_run(1, suite="weekly"), [make_measurement(make_case())])
    write_run(bundle, make_run(2, reason=Reason.MANUAL), [make_measurement(make_case())])
    write_run(bundle, make_run(3, machine=OTHER), [make_measurement(make_case())])
    write_run(bundle, make_run(4), [make_measurement(make_case())], end=False)
    write_run(bundle, make_run(5), [make_measurement(make_case())])
    with fresh() as store:
        ingest_bundle(store, bundle)
        first, broken, last = (
            SuiteRun("run-000", START, True), SuiteRun("run-004", START + 4 * DAY, False),
            SuiteRun("run-005", START + 5 * DAY, True),
        )  # fmt: skip
        assert runs_alike(store, "run-005", limit=9) == [first, broken, last]
        assert runs_alike(store, "run-005", limit=2) == [broken, last]
        assert runs_alike(store, "run-004", limit=9) == [first, broken]
        assert runs_alike(store, "no such run", limit=9) == []
        held = {(s.suite, s.device_model): s.starts for s in suite_starts(store, limit=2)}
    assert held == {
        ("smoke", "Test CPU"): [START + 4 * DAY, START + 5 * DAY],
        ("smoke", "Other"): [START + 3 * DAY],
        ("weekly", "Test CPU"): [START + DAY],
    }


def test_unstable_are_cases_that_ran_and_failed_lately(fresh: Fresh, tmp_path: Path) -> None:
    a, b, c, d = (make_case(i) for i in range(4))
    bundle = tmp_path / "b.jsonl"
    write_run(bundle, make_run(0), [make_measurement(a, status=Status.CRASHED), make_measurement(d)])
    write_run(bundle, make_run(1), [make_measurement(x) for x in (a, b, c)])
    retried = [
        make_measurement(b, status=Status.CRASHED, attempt=1),
        make_measurement(b, attempt=2),
        make_measurement(c, status=Status.UNSUPPORTED),
        make_measurement(d, status=Status.DESELECTED),
    ]
    write_run(bundle, make_run(2), [*retried, make_measurement(a)])
    with fresh() as store:
        ingest_bundle(store, bundle)
        assert unstable_cases(store, runs=2) == {b.key}, "a second try that went well does not hide the first"
        assert unstable_cases(store) == {a.key, b.key}
        assert unstable_cases(store, runs=1) == {b.key}


def test_results_are_known_by_ruler_environment_and_method(fresh: Fresh, tmp_path: Path) -> None:
    a, b, c, d = (make_case(i) for i in range(4))
    run = make_run(0, options={"seed": 1, "max_seconds": 1.0, "driver": "asv"})
    made = [
        make_measurement(a), make_measurement(b, status=Status.CRASHED), make_measurement(c, status=Status.INVALID),
        make_measurement(d, status=Status.DESELECTED),
    ]  # fmt: skip
    with fresh() as store:
        ingest_bundle(store, write_run(tmp_path / "b.jsonl", run, made))

        def known(**changes: Any) -> set[str]:
            return already_measured(store, replace(run, **changes))

        assert known() == {a.key, b.key}, "a kernel that fails is a result, a machine that was disturbed is none"
        assert known(suite="other", revision=Revision("rev9"), id="x") == {a.key, b.key}, "contents count, not names"
        assert known(options={"seed": 1, "max_seconds": 1.0, "driver": "fleet", "where": "x"}) == {a.key, b.key}
        assert known(options={"seed": 2, "max_seconds": 1.0}) == known(options={"seed": 1}) == set()
        assert known(ruler_version="other") == set()
        around = run.environment
        for other in (
            replace(around, kernels_hash="k9"), replace(around, packages={"torch": "2.14.0"}),
            replace(around, variables={"OMP_NUM_THREADS": "3"}), replace(around, machine=OTHER),
        ):  # fmt: skip
            assert known(environment=other) == set()
