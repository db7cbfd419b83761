"""A fault that shows in compiled code: compiled without and with it, stored, judged. Needs no GPU."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from db.engine import open_store
from harness.ingest import ingest_bundle
from harness.judge.static import judge_static
from harness.model import Case, Revision
from harness.model.findings import NightReport
from harness.policy import NO_POLICY
from harness.replay import variables
from harness.static.bundle import case_of, run_of, write_bundle
from harness.static.compiling import records, source
from harness.static.records import StaticRecord

from .replays import is_exact, rows_where


def replay_static(
    launches: str, fault: str, target: int, folder: Path, *, grid: str = "pull_request"
) -> tuple[NightReport, list[StaticRecord]]:
    """Compile "package.module:function" for an architecture without and with ``fault``; the report of the second run,
    and its records. With an empty ``fault`` both are alike."""
    compiled = []
    for name in ("", fault):
        with variables(name):
            compiled.append(list(records(source(launches), [target], grid)))
    with open_store(folder / "static.db") as store:
        for n, held in enumerate(compiled):
            revision = Revision(f"{'faulty' if n and fault else 'sound'}-{n}", kernels_hash=held[0].source_hash)
            run = run_of(held, revision, grid=grid, started_at=time.time() + n)
            write_bundle(folder / f"{n}.jsonl", [(run, held)])
            ingest_bundle(store, folder / f"{n}.jsonl")
        return judge_static(store, [run.id], folder, NO_POLICY), compiled[1]


def exact(report: NightReport, held: Sequence[StaticRecord], trigger: str) -> bool:
    """Whether one incident was told whose predicate holds on the variants exactly where ``trigger`` does."""
    cases: list[Case] = [case_of(r) for r in held]
    return is_exact(report, cases, rows_where(cases, trigger))


def said(launches: str, fault: str, trigger: str, target: int = 90) -> tuple[bool, bool, list[str]]:
    """(flagged, exact, titles) of :func:`replay_static` in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        report, held = replay_static(launches, fault, target, Path(folder))
        titles = [i.title for i in report.new_confirmed]
        return bool(titles), exact(report, held, trigger), titles
