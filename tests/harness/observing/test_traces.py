"""Runs as traces: with OpenTelemetry's own exporter in memory, and over real HTTP in its wire format."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from db.engine import open_store
from db.repository import IncidentRecord, RegressionRecord, upsert_incident
from harness.ingest import ingest_bundle
from harness.model import InfrastructureError, InputError, Status, TriageState, VerdictKind
from harness.model.traces import trace_id
from harness.observing.spans import send
from tests.db.factory import MACHINE, START, make_case, make_measurement, make_run, write_run

RUN = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def db(tmp_path: Path) -> str:
    made = [
        make_measurement(make_case(0), 0.25, at=START + 1, duration_s=2.0),
        make_measurement(make_case(1), status=Status.CRASHED, at=START + 3, attempt=1),
        make_measurement(make_case(1), at=START + 5, attempt=2),
    ]
    path = str(tmp_path / "x.db")
    run = make_run(0, name=RUN)
    with open_store(path) as store:
        ingest_bundle(store, write_run(tmp_path / "0.jsonl", run, made))
        record = IncidentRecord(
            id="i1", state=TriageState.NEW, title="slow", trigger_text="kv_len == 1", machine=MACHINE.fingerprint,
            first_bad_revision=run.revision.id,
        )  # fmt: skip
        row = RegressionRecord(make_case(0).key, "latency_s", VerdictKind.SLOWER, TriageState.CONFIRMED, ratio=1.5)
        upsert_incident(store, record, [row], at=START + 9)
    return path


def test_the_id_of_a_run_is_that_of_its_trace() -> None:
    assert trace_id(RUN) == RUN
    for odd in ("run-000", "0" * 32, RUN.upper(), RUN + "0"):
        assert len(trace_id(odd)) == 32 and trace_id(odd) == trace_id(odd) != odd


def test_a_run_is_one_trace_with_a_span_for_each_attempt(db: str) -> None:
    memory = InMemorySpanExporter()
    with open_store(db, read_only=True) as store:
        assert send(store, None, memory) == (RUN, 4)
    root, *cases = memory.get_finished_spans()
    assert {format(s.context.trace_id, "032x") for s in (root, *cases)} == {RUN}
    assert root.parent is None and all(c.parent is not None and c.parent.span_id == root.context.span_id for c in cases)
    assert root.start_time == round(START * 1e9) and root.attributes["attnwatch.suite"] == "smoke"
    (event,) = root.events
    assert event.attributes["incident.id"] == "i1" and event.attributes["incident.trigger"] == "kv_len == 1"
    first, crashed, again = cases
    assert first.end_time - first.start_time == 2_000_000_000
    assert first.attributes["attnwatch.latency_s"] == 0.25
    assert [c.attributes["attnwatch.attempt"] for c in (crashed, again)] == [1, 2]
    assert [c.status.is_ok for c in cases] == [True, False, True]
    assert len({c.context.span_id for c in cases}) == 3


class Collector:
    """What a collector took; it answers with ``code``."""

    def __init__(self) -> None:
        self.code, self.got, self.url = 200, [], ""

    @property
    def spans(self) -> list[Any]:
        return [s for r in self.got for rs in r.resource_spans for ss in rs.scope_spans for s in ss.spans]


@contextmanager
def collecting() -> Iterator[Collector]:
    held = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
            if held.code == 200:
                held.got.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(held.code)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    held.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield held
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_collector_gets_them_over_http_and_twice_the_same(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector, open_store(db, read_only=True) as store:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        send(store, RUN)
        first = {s.span_id for s in collector.spans}
        assert len(first) == 4 and {s.trace_id.hex() for s in collector.spans} == {RUN}
        send(store, RUN)
        assert {s.span_id for s in collector.spans} == first
        collector.code = 400
        with pytest.raises(InfrastructureError, match="OTEL_EXPORTER_OTLP_ENDPOINT"):
            send(store, RUN)
        with pytest.raises(InputError, match="no run 'other'"):
            send(store, "other")


@pytest.mark.slow
def test_the_command(db: str) -> None:
    with collecting() as collector:
        env = {"PATH": "/usr/bin:/bin", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        command = [sys.executable, "-m", "harness.cli", "traces", "--db", db, "--json"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == {"trace": RUN, "spans": 4} and len(collector.spans) == 4
