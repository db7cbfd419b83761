"""Base and head of a stored change as workers: the kernels and the variables that each of the two runs had."""

from __future__ import annotations

import os
from pathlib import Path

from db.engine import Store
from db.queries import RunRow, environment_of_run
from harness.builds import build
from harness.model import AttnwatchError
from harness.variables import recorded
from harness.worker import WorkerSpec


def spec_of(store: Store, run: RunRow, device: str, kernels_root: str) -> WorkerSpec:
    """A worker with the variables that ``run`` recorded, whatever is set now."""
    stored = environment_of_run(store, run.id)
    now = recorded(os.environ)
    then = now if stored is None else {k: str(v) for k, v in stored.variables.items()}
    changed = tuple((k, v) for k, v in sorted(then.items()) if now.get(k) != v)
    return WorkerSpec(device, kernels=kernels_root, variables=changed, unset=tuple(sorted(now.keys() - then.keys())))


def earlier_kernels(repo: Path, run: RunRow) -> str | None:
    """Folder with the kernels of a run's commit; None where it has none or that cannot be laid out any more."""
    if run.commit is None:
        return None
    try:
        return str(build(repo, run.commit).root)
    except AttnwatchError:
        return None  # rewritten history, a shallow clone


def variables_differ(store: Store, base: RunRow, head: RunRow) -> bool:
    """Whether the two runs had other variables."""
    a, b = environment_of_run(store, base.id), environment_of_run(store, head.id)
    return a is not None and b is not None and a.variables != b.variables
