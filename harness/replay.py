"""A fault put in for real: nights without it, one night with it, and what the service says of that night.

The fault is switched on by an environment variable of the worker (``kernels/faults``), so that both nights measure the
same commit, and confirmation measures base and head interleaved with and without it.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from db.engine import Store

from .bundle import BundleWriter
from .ingest import ingest_bundle
from .model import Case, MeasureOptions, Reason, Run
from .model.findings import NightReport
from .policy import NO_POLICY, Policy
from .revision import revision_of
from .sweep import run_options, run_sweep
from .variables import FAULTS
from .worker import WorkerClient, WorkerSpec

#: Short, since a planted fault is at least twofold; the judge measures again what it suspects.
OPTIONS = MeasureOptions(rel_width=0.1, max_seconds=0.15, hot=False)

Say = Callable[[str], None]


def replay(
    cases: Sequence[Case],
    fault: str,
    store: Store,
    folder: Path,
    *,
    device: str = "cpu",
    good_nights: int = 1,
    options: MeasureOptions = OPTIONS,
    policy: Policy = NO_POLICY,
    say: Say = lambda text: None,
) -> NightReport:
    """Measure ``cases`` on ``good_nights`` nights, then with ``fault`` (names, with commas between), and judge that.

    Bundles go to ``folder``, runs to ``store``. With an empty ``fault`` the last night is like the others, for the
    check that nothing is flagged then. ``policy`` says what is worth telling. The report is the one that a nightly
    gives.
    """
    from .judge import JudgePlan, judge_night

    for night in range(good_nights):
        with variables(""):
            say(f"night {night + 1} without the fault")
            _night(cases, store, folder / f"good-{night}.jsonl", device, options)
    with variables(fault):
        say(f"a night with {fault or 'nothing changed'}")
        run_id, root = _night(cases, store, folder / "faulty.jsonl", device, options)
        plan = JudgePlan(
            device=device, repo=Path.cwd(), kernels_root=root, suite_given="replay", options=options, policy=policy
        )  # fmt: skip
        return judge_night(store, run_id, plan, lambda i, n, text: None, say)


def _night(cases: Sequence[Case], store: Store, bundle: Path, device: str, options: MeasureOptions) -> tuple[str, str]:
    """One stored run; its id and the folder that holds its kernels."""
    with BundleWriter(bundle) as writer, WorkerClient.connect(WorkerSpec(device)) as client:
        environment = client.environment()
        root = Path(environment.kernels_path).parent
        run = Run(
            uuid.uuid4().hex, "replay", revision_of(root), environment, time.time(), reason=Reason.MANUAL,
            planned=len(cases), options=run_options(options, driver="replay"),
        )  # fmt: skip
        run_sweep(cases, run=run, client=client, writer=writer, options=options)
        client.shutdown()
    ingest_bundle(store, bundle)
    return run.id, str(root)


@contextmanager
def variables(fault: str) -> Iterator[None]:
    """The process as it would be with the fault: workers inherit its variables."""
    before = os.environ.pop(FAULTS, None)
    if fault:
        os.environ[FAULTS] = fault
    try:
        yield
    finally:
        os.environ.pop(FAULTS, None)
        if before is not None:
            os.environ[FAULTS] = before
