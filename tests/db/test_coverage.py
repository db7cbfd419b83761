"""When cases were last measured and how long they took."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.coverage import SuiteRun, runs_alike, suite_starts
from db.queries import last_measured, mean_durations
from harness.ingest import ingest_bundle
from harness.model import Machine, Reason, Status

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
