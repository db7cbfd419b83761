"""Each page opens on an empty store, a store with a run, and hostile names."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from db.engine import open_store
from harness.bundle import BundleWriter
from harness.ingest import ingest_bundle
from harness.model import (
    Case,
    Environment,
    Machine,
    Measurement,
    Revision,
    Run,
    RunEnd,
    Status,
    Value,
    Workload,
)

APP = str(Path(__file__).parents[2] / "dashboard" / "app.py")
NAME = "<img src=x onerror=alert(1)>"


def fill(db: Path, tmp_path: Path, backend: str) -> None:
    case = Case("prefill", Workload("attention", {"batch": 1, "q_len": 64}), backend)
    run = Run("r1", "smoke", Revision("abc"), Environment(Machine("cpu", "some CPU")), 1.7e9)
    path = tmp_path / "b.jsonl"
    with BundleWriter(path) as writer:
        writer.run(run)
        writer.measurement(
            "r1", Measurement(case, Status.OK, 1.7e9, metrics={"latency_s": Value(0.001, 0.0009, 0.0011, 9)})
        )
        writer.end(RunEnd("r1", 1.7e9 + 5, measured=1))
    with open_store(db) as store:
        ingest_bundle(store, path)


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "a.db"
    monkeypatch.setenv("ATTNWATCH_DB", str(path))
    return path


def test_empty_store(db: Path) -> None:
    open_store(db).close()
    app = AppTest.from_file(APP, default_timeout=30).run()
    assert not app.exception
    assert "no runs yet" in app.info[0].value


@pytest.mark.parametrize("backend", ["sdpa_math", NAME])
def test_a_run_without_incidents(db: Path, tmp_path: Path, backend: str) -> None:
    fill(db, tmp_path, backend)
    app = AppTest.from_file(APP, default_timeout=30).run()
    assert not app.exception
    assert "No incidents" in app.success[0].value
    assert app.warning, "a run of years ago must raise the freshness alarm"
