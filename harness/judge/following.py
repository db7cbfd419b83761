"""A trace followed from the case that was measured to the people who were told.

A trace is written TRACE-SPAN: TRACE is the run's, SPAN the attempt's at the case, as OpenTelemetry is told them
(:mod:`harness.observing.spans`). Both follow from what is stored, so that nothing has to be kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from db.engine import Store
from db.queries import IncidentDetail, MeasurementRow, RunRow, incident, incidents, measurements_of_run, run, runs
from db.retries import standing_attempts
from harness.model import InputError
from harness.model.findings import Finding
from harness.model.traces import span_id, trace_id

#: The key of an incident's evidence that holds the traces of its first findings, and how many.
EVIDENCE, MOST = "traces", 20
#: Runs looked through for a trace that is not the id of one.
_RUNS = 1000


@dataclass(frozen=True)
class Trail:
    """``attempts`` at the case in ``run``, in order; the incidents that hold the case since then, with their triage."""

    trace: str
    run: RunRow
    attempts: list[MeasurementRow]
    incidents: list[IncidentDetail]


def traces(store: Store, findings: Iterable[Finding], head_run: str) -> list[str]:
    """Traces of findings of a run, each case once: what was measured, as the run that showed it first holds it."""
    asked: dict[str, dict[str, None]] = {}
    for f in list(findings)[:MOST]:
        asked.setdefault(f.first_bad or head_run, {})[f.case.key] = None
    return [
        f"{trace_id(where)}-{span_id(where, key, held[key])}"
        for where, keys in asked.items()
        for held in [standing_attempts(store, where, keys)]
        for key in keys
        if key in held
    ]


def follow(store: Store, trace: str) -> Trail:
    """Everything that the store knows of a trace. InputError where it is none, or none that is held."""
    name, _, span = trace.strip().lower().partition("-")
    if len(name) != 32 or len(span) != 16 or set(name + span) - set("0123456789abcdef"):
        raise InputError(f"trace {trace[:80]!r}: is none; give 32 hex digits, a dash and 16, as notices tell them")
    direct = run(store, name)
    candidates = [direct] if direct is not None else runs(store, limit=_RUNS)
    where = next((r for r in candidates if trace_id(r.id) == name), None)
    if where is None:
        raise InputError(f"trace {name}: {store.name} holds no such run")
    held = measurements_of_run(store, where.id, superseded=True)
    case_key = next((m.case.key for m in held if span_id(where.id, m.case.key, m.attempt) == span), None)
    if case_key is None:
        raise InputError(f"trace {trace}: run {where.id} holds no such attempt")
    told = []
    for i in incidents(store, machine=where.machine):
        detail = incident(store, i.id)
        if detail is not None and _holds(detail, case_key, f"{name}-{span}", where.id):
            told.append(detail)
    attempts = sorted((m for m in held if m.case.key == case_key), key=lambda m: m.attempt)
    return Trail(f"{name}-{span}", where, attempts, told)


def _holds(detail: IncidentDetail, case_key: str, trace: str, run_id: str) -> bool:
    """Whether an incident names the trace, or was told of the case in that run."""
    named = trace in (detail.incident.evidence.get(EVIDENCE) or ())
    return named or any(g.case.key == case_key and g.head_run == run_id for g in detail.regressions)
