"""The asv child's side of a sweep: ask the worker for one case and append what it says to the bundle.

Imports no torch and nothing heavy: asv starts a child for each combination.
"""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import replace
from pathlib import Path

from .asv_session import SESSION_OPTION, AsvSession, load_session
from .bundle import BundleWriter
from .bundle_lines import head_of
from .hashing import kernels_location
from .locks import file_lock
from .model import Case, InfrastructureError, InputError, Measurement, Run, Scalar, Status, Workload
from .model.suite import Question
from .model.workloads import suite_name
from .retrying import WAITS, Backoff
from .revision import commit_revision
from .suites import outside_modules
from .sweep import RETRIED, deselected, run_options
from .worker import WorkerClient, WorkerSpec


def measure_for_asv(question: Question, workload_label: str, backend: str) -> Measurement:
    """Measure the case that asv names, or give back what an interrupted sweep already holds of it.

    A case that the budget leaves out is recorded too, with the reason: a gap that nobody explains looks like one
    that nobody meant.
    """
    session = load_session()
    case = question.case(_workload(question, session.suite, workload_label), backend)
    earlier = session.earlier(case.key)
    if earlier is not None and earlier.settled is not None:
        return earlier.settled
    attempt = earlier.attempts + 1 if earlier else 1
    _, kernels_hash = kernels_location()
    commit = os.environ.get("ASV_COMMIT", "")
    bundle = session.bundle(commit or "unversioned", kernels_hash)
    bundle.parent.mkdir(parents=True, exist_ok=True)
    spec = WorkerSpec(session.device, modules=outside_modules([backend]))
    if why := session.left_out(case.key):
        return _leave_out(session, bundle, commit, spec, deselected(case, why, attempt), known=earlier is not None)
    with WorkerClient.connect(spec) as client, BundleWriter(bundle) as writer:
        run_id = _run_id(session, bundle, commit, client, writer)
        measured = replace(_measured(client, case, session), attempt=attempt)
        writer.measurement(run_id, measured)
        if measured.status in RETRIED and not (earlier and earlier.failures):
            first, waits = measured.status, Backoff.read(bundle.with_suffix(WAITS))
            time.sleep(waits.before(first))
            measured = replace(_measured(client, case, session), attempt=attempt + 1)
            writer.measurement(run_id, measured)
            waits.after(first, measured.status)
            waits.write(bundle.with_suffix(WAITS))
    return measured


def _measured(client: WorkerClient, case: Case, session: AsvSession) -> Measurement:
    """The worker's answer; what fails on our side of the socket is kept with its reason, not lost in asv's log."""
    started = time.time()
    try:
        return client.measure(case, session.options)
    except InfrastructureError:
        raise  # the next case would meet it too, and the sweep is to stop
    except Exception as err:
        return Measurement(
            case, Status.INVALID, started, detail=f"the harness failed: {type(err).__name__}: {err}"[:2000]
        )


def _leave_out(
    session: AsvSession, bundle: Path, commit: str, spec: WorkerSpec, record: Measurement, *, known: bool
) -> Measurement:
    """Record that a case was left out, unless the run holds a record of it; a worker only where no run is begun."""
    head = head_of(bundle)
    if not known:
        with BundleWriter(bundle) as writer:
            if head is not None:
                run_id = head.id
            else:
                with WorkerClient.connect(spec) as client:
                    run_id = _run_id(session, bundle, commit, client, writer)
            writer.measurement(run_id, record)
    return record


def _workload(question: Question, suite: str, label: str) -> Workload:
    for workload in question.workloads(suite):
        if workload.label == label:
            return workload
    raise InputError(f"suite {suite!r} has no workload {label!r} in {question.name}")


def _run_id(session: AsvSession, bundle: Path, commit: str, client: WorkerClient, writer: BundleWriter) -> str:
    """The run of this bundle, begun by whichever child comes first."""
    found = head_of(bundle)
    if found is None:
        with file_lock(bundle.with_suffix(".lock"), "begin run"):
            found = head_of(bundle) or _begin(session, commit, client, writer)
    return found.id


def _begin(session: AsvSession, commit: str, client: WorkerClient, writer: BundleWriter) -> Run:
    environment = client.environment()
    root = Path(os.environ.get("ASV_CONF_DIR", "."))
    run = Run(
        id=uuid.uuid4().hex,
        suite=suite_name(session.suite),
        revision=commit_revision(root, commit, environment.kernels_hash),
        environment=environment,
        started_at=time.time(),
        reason=session.reason,
        planned=session.planned,
        options=asv_run_options(session),
    )
    writer.run(run)
    writer.controls(run.id, client.controls(session.options))
    return run


def asv_run_options(session: AsvSession) -> dict[str, Scalar]:
    """What a run under asv records of how it was asked for."""
    return run_options(session.options, driver="asv", **{SESSION_OPTION: session.tag})
