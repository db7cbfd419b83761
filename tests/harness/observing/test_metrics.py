"""Figures for Prometheus: against what was stored, over real HTTP, and as a file."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from db.engine import open_store
from db.repository import IncidentRecord, RegressionRecord, upsert_incident
from harness.ingest import ingest_bundle
from harness.model import InfrastructureError, Status, TriageState, VerdictKind
from harness.observing import figures, prometheus
from tests.db.factory import DAY, MACHINE, START, make_case, make_measurement, make_run, write_run

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def db(tmp_path: Path) -> str:
    """Two nights of one suite; the newest has a crash, something unsupported, and samples thrown away."""
    first = [make_measurement(make_case(i), at=START + i) for i in range(4)]
    last = [
        make_measurement(make_case(0), at=START + DAY, discarded={"throttled": 3}),
        make_measurement(make_case(1), status=Status.CRASHED, at=START + DAY, discarded={"throttled": 1, "foreign": 2}),
        make_measurement(make_case(2), status=Status.UNSUPPORTED, at=START + DAY),
    ]
    path = str(tmp_path / "x.db")
    with open_store(path) as store:
        ingest_bundle(store, write_run(tmp_path / "0.jsonl", make_run(0), first))
        ingest_bundle(store, write_run(tmp_path / "1.jsonl", make_run(1), last))
        for name, state in (("a", TriageState.NEW), ("b", TriageState.NEW), ("c", TriageState.FIXED)):
            record = IncidentRecord(id=name, state=state, title="t", trigger_text="x", machine=MACHINE.fingerprint)
            row = RegressionRecord(make_case(0).key, "latency_s", VerdictKind.SLOWER, TriageState.CONFIRMED, ratio=1.5)
            upsert_incident(store, record, [row], at=START)
    return path


def parsed(text: str) -> Values:
    """(name, labels but those of the machine) -> value, read by the client's own parser."""
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    drop = {"machine", "device", "suite"}
    return {(s.name, tuple(sorted((k, v) for k, v in s.labels.items() if k not in drop))): s.value for s in samples}


def expected(found: Values) -> None:
    assert found["attnwatch_store_up", ()] == 1 and found["attnwatch_store_runs", ()] == 2
    assert found["attnwatch_run_start_time_seconds", ()] == START + DAY
    assert found["attnwatch_run_duration_seconds", ()] > 0
    cases = {labels[0][1]: n for (name, labels), n in found.items() if name == "attnwatch_run_cases"}
    assert cases == {**dict.fromkeys(Status, 0.0), "ok": 1.0, "crashed": 1.0, "unsupported": 1.0}
    assert found["attnwatch_run_missing_cases", ()] == 1
    assert found["attnwatch_run_error_ratio", ()] == 0.5, "what cannot run here is no error"
    discarded = {labels[0][1]: n for (name, labels), n in found.items() if name == "attnwatch_run_discarded_samples"}
    assert discarded == {"throttled": 4, "foreign": 2}
    states = {labels[0][1]: n for (name, labels), n in found.items() if name == "attnwatch_incidents_open"}
    assert states == {"suspect": 0, "new": 2, "confirmed": 0, "acknowledged": 0}


def test_figures_are_those_of_the_store(db: str) -> None:
    text = prometheus.text(db)
    expected(parsed(text))
    assert f'machine="{MACHINE.fingerprint}"' in text and f'device="{MACHINE.device_model}"' in text
    with open_store(db, read_only=True) as store:
        assert {f.name for f in figures(store)} <= set(prometheus.HELP)


def test_an_empty_store_has_no_run_to_tell_of(tmp_path: Path) -> None:
    with open_store(tmp_path / "x.db") as store:
        names = {f.name for f in figures(store)}
    assert "attnwatch_store_up" in names and not any(n.startswith("attnwatch_run") for n in names)


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        body: bytes = answer.read()
    return body.decode()


def test_each_scrape_reads_the_store_anew(db: str, tmp_path: Path) -> None:
    said: list[str] = []
    server, thread = prometheus.serve(db, "127.0.0.1", 0, said.append)
    try:
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        expected(parsed(fetch(url)))
        with open_store(db) as store:
            ingest_bundle(store, write_run(tmp_path / "2.jsonl", make_run(2), [make_measurement(make_case(0))]))
        assert parsed(fetch(url))["attnwatch_store_runs", ()] == 3
        Path(db).unlink()
        assert parsed(fetch(url)) == {("attnwatch_store_up", ()): 0.0}
        assert said and db in said[0]
        with pytest.raises(InfrastructureError, match="give another port"):
            prometheus.serve(db, "127.0.0.1", server.server_port, said.append)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_textfile_is_whole_or_as_it_was(db: str, tmp_path: Path) -> None:
    path = tmp_path / "attnwatch.prom"
    prometheus.write(db, path)
    before = path.read_text()
    expected(parsed(before))
    with pytest.raises(Exception, match=r"no-store"):
        prometheus.write(str(tmp_path / "no-store.db"), path)
    assert path.read_text() == before and list(tmp_path.glob("*.part")) == []
    with pytest.raises(InfrastructureError, match="--textfile"):
        prometheus.write(db, tmp_path / "no" / "folder" / "x.prom")


@pytest.mark.slow
def test_the_command_serves_writes_and_prints(db: str, tmp_path: Path) -> None:
    base = [sys.executable, "-m", "harness.cli", "metrics", "--db", db]
    with subprocess.Popen([*base, "--serve", "0"], stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        try:
            expected(parsed(fetch(running.stderr.readline().strip())))
        finally:
            running.terminate()
        assert running.wait(20) == 130
    told = subprocess.run([*base, "--json"], capture_output=True, text=True, check=True)
    assert {f["name"] for f in json.loads(told.stdout)["figures"]} >= {"attnwatch_run_cases"}
    subprocess.run([*base, "--textfile", str(tmp_path / "a.prom")], check=True, capture_output=True)
    expected(parsed((tmp_path / "a.prom").read_text()))
    wrong = subprocess.run([*base, "--serve", "host:x"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "[HOST:]PORT" in wrong.stderr
