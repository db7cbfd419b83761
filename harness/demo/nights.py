"""Storing and judging the nights of a world."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

import db.repository as repository_module
import harness.judge.confirm as confirm_module
import harness.judge.ends as ends_module
from db.engine import Store
from db.queries import incident, incidents, measurements_of_run
from db.repository import IncidentRecord, set_owner, triage, upsert_incident
from harness.bundle import BundleWriter
from harness.explain import explain
from harness.ingest import ingest_bundle
from harness.judge import JudgePlan, judge_night
from harness.model import Reason, Run, RunEnd, TriageState, Value
from harness.model.findings import NightReport

from .faults import DECISIONS, Decision
from .world import DAY, World, commit


def fill(store: Store, world: World, decisions: Sequence[Decision] = DECISIONS, say: Any = None) -> list[NightReport]:
    """Store and judge every night of ``world``."""
    reports = []
    with tempfile.TemporaryDirectory() as folder, _scripted(world):
        for night in range(world.nights):
            world.night = night
            if say is not None and night % 10 == 0:
                say(f"night {night}/{world.nights}")
            run_id = _store_night(store, world, Path(folder))
            plan = JudgePlan("cpu", Path(folder), f"/demonstration/{world.generation(night)}", "demo.suite.json")
            reports.append(judge_night(store, run_id, plan, lambda *a: None, lambda text: None))
            _explain_new(store, reports[-1])
            for decision in decisions:
                if decision.night == night:
                    _decide(store, world, decision)
    return reports


def _store_night(store: Store, world: World, folder: Path) -> str:
    run_id = hashlib.sha1(f"{world.seed}:{world.start}".encode(), usedforsecurity=False).hexdigest()[:16]
    planted = [f"{f.text} ({f.when})" for f in world.faults if f.since == world.night]
    real = world.environment
    environment = replace(
        real, packages={**real.packages, "torch": world.torch}, kernels_hash=commit(world.generation(world.night))[:16]
    )
    options: dict[str, Any] = {"demo": True, "seed": world.seed}
    if planted:
        options["planted"] = "; ".join(planted)
    cases = [m.case for m in world.real.values()]
    run = Run(
        run_id, "demo", world.revision(world.night), environment, world.start, Reason.NIGHTLY, len(cases),
        options=options,
    )  # fmt: skip
    path = folder / "night.jsonl"
    path.unlink(missing_ok=True)
    tonight = float(np.exp(world.rng.normal(0, 0.006)))
    slow = float(np.prod([f.time for f in world.faults if f.machine and f.at(world.night)]))
    controls = {
        name: value * tonight * slow * float(np.exp(world.rng.normal(0, 0.004)))
        for name, value in world.controls.items()
    }
    with BundleWriter(path) as out:
        out.run(run)
        out.controls(run_id, {name: Value(x, x * 0.99, x * 1.01, 20) for name, x in controls.items()})
        for i, case in enumerate(cases):
            at, shift = world.start + i * 0.4, tonight * float(np.exp(world.rng.normal(0, 0.008)))
            m = world.measured(case, at, shift=shift)
            out.measurement(run_id, m)
            if m.status.failed:
                out.measurement(run_id, world.measured(case, at + 0.2, attempt=2, shift=shift))
        out.end(RunEnd(run_id, world.start + len(cases) * 0.4, measured=len(cases)))
    ingest_bundle(store, path)
    return run_id


def _explain_new(store: Store, report: NightReport) -> None:
    """Give incidents that the judge left without a trigger the one that their combinations show."""
    fresh = [i for i in report.incidents if i.is_new and i.trigger is None]
    tested = [m for m in measurements_of_run(store, report.run_id) if m.status != "unsupported"] if fresh else []
    for found in fresh:
        detail = incident(store, found.id)
        if detail is None or detail.incident.trigger_text:
            continue
        hit = {r.case.key for r in detail.regressions}
        told = explain([m.case.columns for m in tested], [m.case.key in hit for m in tested])
        if not told.triggers:
            continue
        best, held = told.triggers[0], detail.incident
        evidence = {
            **held.evidence, "alternatives": list(best.alternatives),
            "inside": best.inside, "regressed_inside": best.regressed_inside,
        }  # fmt: skip
        record = IncidentRecord(
            held.id, held.title, best.text, held.machine, TriageState(held.state), held.first_bad_revision,
            held.last_good_revision, held.effect, held.effect_low, held.effect_high, held.owner, evidence,
        )  # fmt: skip
        upsert_incident(store, record, [], at=held.updated_at)


def _decide(store: Store, world: World, decision: Decision) -> None:
    first = commit(world.generation(decision.of))
    fault = next(f for f in world.faults if f.since == decision.of)
    for found in incidents(store, states=[TriageState.NEW]):
        same = found.first_bad_revision == first and abs(found.opened_at - world.start) < DAY * 3
        if same and any(fault.predicate(r.case.columns) for r in _regressions(store, found.id)):
            triage(store, found.id, decision.state, decision.reason, decision.author, at=world.start + 8 * 3600)
            if decision.owner:
                set_owner(store, found.id, decision.owner)


def _regressions(store: Store, incident_id: str) -> list[Any]:
    detail = incident(store, incident_id)
    return detail.regressions if detail else []


@contextmanager
def _scripted(world: World) -> Iterator[None]:
    """Measuring again, builds of earlier kernels and the clock of the store answer from ``world``."""
    clock = SimpleNamespace(time=lambda: world.start + 3600)
    with ExitStack() as stack:
        for module, name, value in (
            (confirm_module, "run_ab", world.run_ab),
            (confirm_module, "WorkerClient", SimpleNamespace(connect=world.connect)),
            (ends_module, "build", world.build),
            (repository_module, "time", clock),
        ):
            stack.enter_context(patch.object(module, name, value))
        yield
