"""Judging runs of compiled code (:mod:`harness.static`): as nights, except that nothing is measured again.

The same source and the same compiler give the same code, so that what differs is sure. What came with another compiler
is gathered into one incident for each target, whatever it did to which kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from db.engine import Store
from db.queries import RunRow, run
from harness.model import TriageState
from harness.model.findings import CAME_WITH, Finding, NightReport
from harness.policy import Policy

from .confirm import Progress
from .night import environment_changes, judge_night
from .plan import JudgePlan

T = TypeVar("T")

_PACKAGE = "package "


def judge_static(store: Store, run_ids: Sequence[str], repo: Path, policy: Policy, bundle: str = "") -> NightReport:
    """Judge stored runs of one revision, one for each target, and save their incidents; one report over all of them.

    ``run_ids`` is not empty.
    """
    plan = JudgePlan(
        device="", repo=repo, kernels_root="", suite_given="static", bundle=bundle, policy=policy, settle=settled
    )
    return together([judge_night(store, name, plan, lambda *_: None, lambda _: None) for name in run_ids])


def settled(
    store: Store, findings: list[Finding], head: RunRow, plan: JudgePlan, progress: Progress | None
) -> list[Finding]:
    """The same findings, all confirmed, each with the change of compiler that it came with."""
    causes: dict[str | None, str] = {}
    for f in findings:
        if f.last_good not in causes:
            base = run(store, f.last_good) if f.last_good else None
            causes[f.last_good] = "" if base is None else new_compiler(store, base, head)
    return [_settled(f, causes[f.last_good]) for f in findings]


def _settled(f: Finding, cause: str) -> Finding:
    how = f"compiled code, exact; {CAME_WITH}{cause}" if cause else "compiled code, exact"
    return replace(f, state=TriageState.CONFIRMED, how=how, cause=cause)


def new_compiler(store: Store, base: RunRow, head: RunRow) -> str:
    """What differs between the compilers of two runs: "ptxas 12.9 -> 13.0, triton 3.7.1 -> 3.8.0"; empty if nothing."""
    changes = environment_changes(store, base, head)
    return ", ".join(c.removeprefix(_PACKAGE).replace(": ", " ", 1) for c in changes if c.startswith(_PACKAGE))


def together(reports: Sequence[NightReport]) -> NightReport:
    """Reports of the targets of one revision as one."""
    first = reports[0]
    return replace(
        first,
        machine=", ".join(r.machine for r in reports),
        duration_s=max(r.duration_s for r in reports),
        counts=dict(sum((Counter(r.counts) for r in reports), Counter())),
        base_run=next((r.base_run for r in reports if r.base_run), None),
        base_revision=next((r.base_revision for r in reports if r.base_revision), None),
        nights=max(r.nights for r in reports),
        incidents=_all(r.incidents for r in reports),
        still_open=_all(r.still_open for r in reports),
        recovered=_all(r.recovered for r in reports),
        findings=_all(r.findings for r in reports),
        compared=sum(r.compared for r in reports),
        missing=_all(r.missing for r in reports),
        failures=_all(r.failures for r in reports),
        notes=list(dict.fromkeys(_all(r.notes for r in reports))),
        what_changed=list(dict.fromkeys(_all(r.what_changed for r in reports))),
        from_shadow=_all(r.from_shadow for r in reports),
        coverage=_all(r.coverage for r in reports),
    )


def _all(lists: Iterable[list[T]]) -> list[T]:
    return [item for part in lists for item in part]
