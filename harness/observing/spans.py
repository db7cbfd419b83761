"""Stored runs as traces: one trace a run, one span for each attempt at a case, sent through OTLP.

Ids follow from what is stored, so the same run is the same trace however often and from wherever it is sent: an alert
that names the run names its trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from db.engine import Store
from db.queries import IncidentRow, MeasurementRow, RunRow, incidents, latest_run, measurements_of_run, run
from harness.extras import needed
from harness.model import InfrastructureError, InputError, Status
from harness.model.traces import span_id, trace_id

EXTRA = "observability"

#: Spans in one request.
CHUNK = 500


def send(store: Store, run_id: str | None, exporter: Any = None) -> tuple[str, int]:
    """Send a run, the newest where none is named: (its trace id, number of spans).

    ``exporter`` is one of OpenTelemetry's; by default OTLP over HTTP, which the standard variables set up
    (``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_EXPORTER_OTLP_HEADERS``). InputError where there is no such run,
    InfrastructureError where the spans were not taken.
    """
    row = latest_run(store) if run_id is None else run(store, run_id)
    if row is None:
        raise InputError(f"{store.name}: no run {run_id!r}" if run_id else f"{store.name}: holds no run")
    if exporter is None:
        exporter = needed("opentelemetry.exporter.otlp.proto.http.trace_exporter", EXTRA).OTLPSpanExporter()
    trace, told = needed("opentelemetry.sdk.trace.export", EXTRA), list(spans(store, row))
    try:
        for at in range(0, len(told), CHUNK):
            if exporter.export(told[at : at + CHUNK]) is not trace.SpanExportResult.SUCCESS:
                raise InfrastructureError(
                    f"run {row.id}: {at} of {len(told)} spans were taken, then the collector refused or did not "
                    "answer; look at OTEL_EXPORTER_OTLP_ENDPOINT and send it again"
                )
    finally:
        exporter.shutdown()
    return trace_id(row.id), len(told)


def spans(store: Store, row: RunRow) -> Iterator[Any]:
    """Spans of a run, ready to export: the run itself, then each attempt in the order it was made."""
    sdk, api = needed("opentelemetry.sdk.trace", EXTRA), needed("opentelemetry.trace", EXTRA)
    resource = needed("opentelemetry.sdk.resources", EXTRA).Resource(
        {"service.name": "attnwatch", "host.name": row.host}
    )
    made = measurements_of_run(store, row.id, superseded=True)
    begun = [i for i in incidents(store, machine=row.machine) if i.first_bad_revision == row.revision]
    end = row.finished_at or max((m.started_at + m.duration_s for m in made), default=row.started_at)

    def context(span: str) -> Any:
        flags = api.TraceFlags(api.TraceFlags.SAMPLED)
        return api.SpanContext(int(trace_id(row.id), 16), int(span, 16), is_remote=False, trace_flags=flags)

    root = context(span_id(row.id))
    yield sdk.ReadableSpan(
        f"run {row.suite}", root, resource=resource, attributes=_of_run(row), kind=api.SpanKind.INTERNAL,
        events=[_event(sdk, i) for i in begun], start_time=_ns(row.started_at), end_time=_ns(end),
        status=api.Status(api.StatusCode.OK if row.complete else api.StatusCode.UNSET),
    )  # fmt: skip
    for m in made:
        failed = Status(m.status).failed
        yield sdk.ReadableSpan(
            f"measure {m.case.backend}", context(span_id(row.id, m.case.key, m.attempt)), root, resource,
            attributes=_of_case(m), kind=api.SpanKind.INTERNAL, start_time=_ns(m.started_at),
            end_time=_ns(m.started_at + m.duration_s),
            status=api.Status(api.StatusCode.ERROR, m.detail[:200]) if failed else api.Status(api.StatusCode.UNSET),
        )  # fmt: skip


def _event(sdk: Any, i: IncidentRow) -> Any:
    told = {"incident.id": i.id, "incident.title": i.title, "incident.trigger": i.trigger_text}
    more = {"incident.state": i.state, "incident.cases": i.regressions}
    return sdk.Event("incident", {**told, **more}, timestamp=_ns(i.opened_at))


def _of_run(row: RunRow) -> dict[str, Any]:
    return {
        "attnwatch.run": row.id, "attnwatch.suite": row.suite, "attnwatch.reason": row.reason,
        "attnwatch.revision": row.revision, "attnwatch.machine": row.machine, "attnwatch.device": row.device_model,
        "attnwatch.environment": row.environment, "attnwatch.kernels": row.kernels_hash,
        "attnwatch.planned": row.planned, "attnwatch.measured": row.measured, "attnwatch.complete": row.complete,
    }  # fmt: skip


def _of_case(m: MeasurementRow) -> dict[str, Any]:
    told: dict[str, Any] = {
        "attnwatch.case": m.case.key, "attnwatch.benchmark": m.case.benchmark, "attnwatch.operation": m.case.operation,
        "attnwatch.backend": m.case.backend, "attnwatch.workload": m.case.label, "attnwatch.status": m.status,
        "attnwatch.attempt": m.attempt, "attnwatch.stop_reason": m.stop_reason,
        "attnwatch.discarded": sum((m.discarded or {}).values()),
    }  # fmt: skip
    return told | {f"attnwatch.{name}": value.value for name, value in m.metrics.items()}


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
