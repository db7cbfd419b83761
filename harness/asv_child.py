"""The asv child's side of a sweep: ask the worker for one case and append what it says to the bundle.

Imports no torch and nothing heavy: asv starts a child for each combination.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from dataclasses import replace
from pathlib import Path

from .asv_session import AsvSession, load_session
from .bundle import BundleWriter
from .hashing import kernels_location
from .locks import file_lock
from .model import InputError, Measurement, Run, Status, Workload
from .model.serde import from_plain
from .model.suite import Question
from .revision import commit_revision
from .sweep import RETRIED
from .worker import WorkerClient, WorkerSpec


def measure_for_asv(question: Question, workload_label: str, backend: str) -> Measurement:
    """Measure the case that asv names, or give back what an interrupted sweep already holds of it."""
    session = load_session()
    case = question.case(_workload(question, session.suite, workload_label), backend)
    earlier = session.done(case.key)
    if earlier is not None:
        return from_plain(Measurement, earlier)
    if session.deadline is not None and time.time() >= session.deadline:
        return Measurement(case, Status.DESELECTED, time.time(), detail="the budget had ended")
    _, kernels_hash = kernels_location()
    commit = os.environ.get("ASV_COMMIT", "")
    bundle = session.bundle(commit or "unversioned", kernels_hash)
    bundle.parent.mkdir(parents=True, exist_ok=True)
    with WorkerClient.connect(WorkerSpec(session.device)) as client, BundleWriter(bundle) as writer:
        run_id = _run_id(session, bundle, commit, client, writer)
        measured = client.measure(case, session.options)
        writer.measurement(run_id, measured)
        if measured.status in RETRIED:
            measured = replace(client.measure(case, session.options), attempt=2)
            writer.measurement(run_id, measured)
    return measured


def _workload(question: Question, suite: str, label: str) -> Workload:
    for workload in question.workloads(suite):
        if workload.label == label:
            return workload
    raise InputError(f"suite {suite!r} has no workload {label!r} in {question.name}")


def _run_id(session: AsvSession, bundle: Path, commit: str, client: WorkerClient, writer: BundleWriter) -> str:
    """The run of this bundle, begun by whichever child comes first."""
    found = _head(bundle)
    if found is None:
        with file_lock(bundle.with_suffix(".lock"), "begin run"):
            found = _head(bundle) or _begin(session, commit, client, writer)
    return found


def _begin(session: AsvSession, commit: str, client: WorkerClient, writer: BundleWriter) -> str:
    environment = client.environment()
    root = Path(os.environ.get("ASV_CONF_DIR", "."))
    run = Run(
        id=uuid.uuid4().hex,
        suite=session.suite_name,
        revision=commit_revision(root, commit, environment.kernels_hash),
        environment=environment,
        started_at=time.time(),
        reason=session.reason,
        planned=session.planned,
        options={"driver": "asv", "asv_env": os.environ.get("ASV_ENV_NAME", "")},
    )
    writer.run(run)
    writer.controls(run.id, client.controls(session.options))
    return run.id


def _head(bundle: Path) -> str | None:
    """Id of the run that a bundle began with."""
    try:
        with bundle.open("rb") as file:
            first = file.readline()
    except FileNotFoundError:
        return None
    return str(json.loads(first)["id"]) if first.endswith(b"\n") else None
