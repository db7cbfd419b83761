"""``attnwatch backfill``: measure earlier commits with today's ruler, so that a new machine has a history.

The commits of a range are measured in an order in which every beginning is spread evenly over it: newest, oldest,
the middle, the quarters. A run stands at the time of its commit, since that is its place in the series; when it was
really measured is kept in its options. What is stored already, or has the kernels of something stored, is passed over;
broken off, the same command goes on.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from db.engine import Store
from db.queries import runs

from .builds import build, git
from .bundle import BundleWriter
from .ingest import ingest_bundle
from .model import AttnwatchError, Case, InputError, MeasureOptions, Reason, Run
from .model.workloads import suite_name
from .revision import commit_revision
from .rotation import spread
from .sweep import ResumeState, SweepEvent, resume_state, run_options, run_sweep, same_run
from .worker import WorkerClient, WorkerSpec

_MEASURED_AT = "measured_at"


@dataclass(frozen=True)
class BackfillOptions:
    """What to measure on which device. ``folder`` keeps bundles of commits until they are stored."""

    repo: Path
    device: str
    suite: str
    cases: Sequence[Case]
    modules: tuple[str, ...] = ()
    options: MeasureOptions = field(default_factory=MeasureOptions)
    deadline: float | None = None

    @property
    def folder(self) -> Path:
        """Where bundles of unfinished commits lie."""
        return self.repo / ".asv" / "backfill"


@dataclass
class Filled:
    """One commit. ``state`` is ``measured``, ``stored`` (before), ``skipped`` (``why``) or ``left`` (no time)."""

    commit: str
    subject: str
    state: str = "left"
    why: str = ""
    run: str | None = None


def commits(repo: Path, given: str | None, last: int, every: int) -> list[tuple[str, str]]:
    """(hash, subject) of the commits that touch ``kernels/``, oldest first.

    Those of the range ``given`` (``A..B``), else the ``last`` ones; every so many of them, the newest always.
    InputError where there are none.
    """
    if given is not None and (".." not in given or given.startswith("-")):
        raise InputError(f"--range: {given!r} is no range of commits; give A..B")
    where = [given] if given is not None else [f"-{last}", "HEAD"]
    text = git(repo, "log", "--first-parent", "--format=%H %s", *where, "--", "kernels").decode(errors="replace")
    newest_first = [(h, s) for h, _, s in (line.partition(" ") for line in text.splitlines())][::every]
    if not newest_first:
        raise InputError(f"no commit touches kernels/ in {given or 'the history of HEAD'}")
    return newest_first[::-1]


def backfill(
    store: Store, chosen: Sequence[tuple[str, str]], asked: BackfillOptions, say: Callable[[str], None],
    progress: Callable[[SweepEvent], None] | None = None,
) -> list[Filled]:  # fmt: skip
    """Measure and store the commits; what became of each, in the order of the history.

    A commit that cannot be laid out, or whose worker does not start, is skipped with the reason. Ctrl-C passes
    through; what was measured is gone on with next time.
    """
    filled = [Filled(h, s) for h, s in chosen]
    for i in spread(len(filled)):
        item = filled[i]
        if asked.deadline is not None and time.time() >= asked.deadline:
            break
        try:
            _one(store, item, asked, say, progress)
        except AttnwatchError as error:
            item.state, item.why = "skipped", str(error)[:500]
            say(f"skipped {item.commit[:12]} {item.subject}: {item.why}")
    return filled


def _one(
    store: Store, item: Filled, asked: BackfillOptions, say: Callable[[str], None],
    progress: Callable[[SweepEvent], None] | None,
) -> None:  # fmt: skip
    root = build(asked.repo, item.commit).root
    with WorkerClient.connect(WorkerSpec(asked.device, kernels=str(root), modules=asked.modules)) as client:
        environment = client.environment()
        revision = commit_revision(asked.repo, item.commit, environment.kernels_hash)
        known = runs(store, limit=None, suite=suite_name(asked.suite), machine=environment.machine.fingerprint,
                     complete_only=True)  # fmt: skip
        same = next((r for r in known if r.kernels_hash == environment.kernels_hash), None)
        if same is not None:
            item.state, item.run = "stored", same.id
            item.why = "" if same.commit == item.commit else f"the kernels are those of {same.revision[:12]}"
            return
        options = run_options(asked.options, driver="backfill", **{_MEASURED_AT: time.time()})
        at = revision.committed_at if revision.committed_at is not None else time.time()
        wanted = Run(
            uuid.uuid4().hex, suite_name(asked.suite), revision, environment, at, Reason.BACKFILL, len(asked.cases),
            options=options,
        )  # fmt: skip
        asked.folder.mkdir(parents=True, exist_ok=True)
        path = asked.folder / f"{wanted.suite}-{item.commit[:16]}.jsonl"
        state = resume_state(path)
        if state.run is None or not same_run(_untimed(state.run), _untimed(wanted)):
            path.unlink(missing_ok=True)
            state = ResumeState()
        run = state.run or wanted
        say(f"measuring {item.commit[:12]} {item.subject}" + (f": {len(state.done)} done" if state.done else ""))
        with BundleWriter(path) as writer:
            summary = run_sweep(
                asked.cases, run=run, client=client, writer=writer, options=asked.options, progress=progress,
                done=state.done, pending=state.pending, deadline=asked.deadline, write_run=state.run is None,
            )  # fmt: skip
        client.shutdown()
    if summary.interrupted:
        raise KeyboardInterrupt
    if summary.remaining:
        return
    ingest_bundle(store, path)
    path.unlink()
    item.state, item.run = "measured", run.id


def _untimed(run: Run) -> Run:
    """The run as it was asked for, whenever it was measured."""
    return replace(run, options={k: v for k, v in run.options.items() if k != _MEASURED_AT})
