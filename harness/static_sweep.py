"""Compiled kernels of a revision as a bundle, in a store, or against another revision. No GPU is needed.

Each target is compiled in a child of its own that sees the kernels of the revision asked for and no others. What was
compiled is kept by content, so that only what changed is compiled again and a broken-off command goes on where it was.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from db.engine import Store, open_store

from .builds import build, build_worktree
from .hashing import PACKAGE, content_hash
from .ingest import ingest_bundle
from .model import InfrastructureError, InputError, Reason, Revision
from .model.findings import NightReport
from .policy import NO_POLICY, Policy
from .revision import commit_revision, revision_of
from .runtime import runtime_dir
from .static.bundle import run_of, write_bundle
from .static.compiling import TARGETS
from .static.records import StaticRecord

#: Records that nobody asked for in so long are deleted.
_KEEP_S = 60 * 86400.0

Tell = Callable[[StaticRecord], None]


@dataclass(frozen=True)
class StaticOptions:
    """What is compiled: ``grid`` for ``targets`` (90 for sm_90), those for whose case ``where`` holds.

    ``cache`` keeps records by content; ``jobs`` children compile at a time.
    """

    repo: Path
    targets: tuple[int, ...] = TARGETS
    grid: str = "pull_request"
    where: str | None = None
    cache: Path = field(default_factory=lambda: runtime_dir() / "static")
    jobs: int = 1


@dataclass(frozen=True)
class Compiled:
    """Records of a revision, those of each target together; ``kernels`` is the folder that holds the package."""

    revision: Revision
    kernels: Path
    started_at: float
    records: list[list[StaticRecord]]


def compile_kernels(options: StaticOptions, ref: str | None, tell: Tell) -> Compiled:
    """Compile the kernels of a commit, or of the working tree where ``ref`` is None.

    Raises InputError for a revision that has no kernels to compile or where nothing is asked for, InfrastructureError
    where there is no compiler.
    """
    started_at = time.time()
    if ref is None:
        root = build_worktree(options.repo).root
        revision = revision_of(options.repo)
    else:
        made = build(options.repo, ref)
        root = made.root
        revision = commit_revision(options.repo, made.commit, content_hash(root / PACKAGE))
    _forget_old(options.cache)
    stop = Event()
    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        waiting = [pool.submit(_child, options, root, target, tell, stop) for target in options.targets]
        try:
            found = [w.result() for w in waiting]
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    records = [part for part in found if part]
    if not records:
        raise InputError(f"nothing to compile: no variant of {revision.id[:12]} satisfies {options.where!r}")
    return Compiled(revision, root, started_at, records)


def _child(options: StaticOptions, root: Path, target: int, tell: Tell, stop: Event) -> list[StaticRecord]:
    """Records of one target, from a process that can import the kernels below ``root`` only."""
    ruler = str(Path(__file__).resolve().parent.parent)
    with tempfile.TemporaryDirectory(prefix="attnwatch-static-") as scratch:
        search = [ruler, *filter(None, [os.environ.get("PYTHONPATH")])]
        # Triton's own cache would only grow: what is kept is kept by us.
        changed = {"PYTHONPATH": os.pathsep.join(search), "TRITON_CACHE_DIR": scratch, "PYTHONSAFEPATH": "1"}
        command = [
            sys.executable, "-m", "harness.static", "--stream", "--kernels", str(root), "--grid", options.grid,
            "--targets", str(target), "--cache", str(options.cache),
        ]  # fmt: skip
        command += ["--where", options.where] if options.where else []
        environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | changed
        with (Path(scratch) / "said").open("w+", encoding="utf-8") as said:
            child = subprocess.Popen(
                command, cwd=scratch, env=environment, stdout=subprocess.PIPE, stderr=said, text=True
            )
            try:
                found = _read(child, tell, stop)
            finally:
                child.kill()
                child.wait()
            if code := child.returncode if found is None else 0:
                said.seek(0)
                words = said.read().strip()
                if code == 2:
                    raise InputError(words.removeprefix("attnwatch static: ") or "the kernels cannot be compiled")
                last = words.splitlines()[-1] if words else f"exit code {code}"
                raise InfrastructureError(f"compiling for sm_{target} failed: {last[:400]}")
    return found or []


def _read(child: subprocess.Popen[str], tell: Tell, stop: Event) -> list[StaticRecord] | None:
    """Records that a child prints, None where it failed or was stopped."""
    found = []
    assert child.stdout is not None
    for line in child.stdout:
        if stop.is_set():
            return None
        record = StaticRecord(**json.loads(line))
        found.append(record)
        tell(record)
    return found if child.wait() == 0 else None


def _forget_old(folder: Path) -> None:
    now = time.time()
    for path in folder.glob("*.json") if folder.is_dir() else ():
        with suppress(OSError):
            if path.stat().st_mtime < now - _KEEP_S:
                path.unlink()


def bundle(
    path: Path, compiled: Compiled, options: StaticOptions, *, reason: Reason, at: float | None = None
) -> list[str]:
    """Append a run for each target to the bundle at ``path``; their ids. ``at`` is when they began, if not as noted."""
    began = compiled.started_at if at is None else at
    place = str(compiled.kernels)
    runs = [
        run_of(part, compiled.revision, grid=options.grid, kernels_path=place, started_at=began, reason=reason)
        for part in compiled.records
    ]
    write_bundle(path, list(zip(runs, compiled.records, strict=True)))
    return [run.id for run in runs]


def store_and_judge(
    store: Store, compiled: Compiled, options: StaticOptions, policy: Policy, *, reason: Reason = Reason.MANUAL
) -> NightReport:
    """Store what was compiled, a whole grid, and judge it against the last runs of the same targets."""
    return _stored(store, [(compiled, reason, compiled.started_at)], options, policy)


def compare(base: Compiled, head: Compiled, options: StaticOptions, policy: Policy = NO_POLICY) -> NightReport:
    """Judge ``head`` against ``base``, in a store that is thrown away."""
    before = min(base.started_at, head.started_at - 1.0)
    sides = [(base, Reason.PULL_REQUEST, before), (head, Reason.PULL_REQUEST, head.started_at)]
    with tempfile.TemporaryDirectory(prefix="attnwatch-static-") as scratch:
        with open_store(Path(scratch) / "static.db") as store:
            report = _stored(store, sides, options, policy)
        report.store = report.bundle = ""
        return report


def _stored(
    store: Store, sides: Sequence[tuple[Compiled, Reason, float]], options: StaticOptions, policy: Policy
) -> NightReport:
    from .judge.static import judge_static

    with tempfile.TemporaryDirectory(prefix="attnwatch-static-") as scratch:
        for compiled, reason, at in sides:
            path = Path(scratch) / f"{at}.jsonl"
            runs = bundle(path, compiled, options, reason=reason, at=at)
            ingest_bundle(store, path)
    return judge_static(store, runs, options.repo, policy)
