"""What an asv child needs to know of the sweep it belongs to: one JSON file named by ``ATTNWATCH_SESSION``.

``attnwatch nightly`` writes it. Where there is none (a plain ``asv run``) each commit and environment gets a bundle
of its own under ``.asv/bundles``, so that nothing measured is lost.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from .bundle_lines import head_of
from .device import default_device
from .model import InputError, Measurement, MeasureOptions, Reason
from .model.serde import from_plain, to_plain
from .model.suite import DEFAULT_SUITE, SUITE_VARIABLE
from .model.workloads import suite_name
from .sweep import BUDGET_ENDED

SESSION_VARIABLE = "ATTNWATCH_SESSION"
#: Folders that asv's children search too; asv takes ``PYTHONPATH`` away from them.
SEARCH_VARIABLE = "ATTNWATCH_PATH"
#: Name of the run's option that says which session measured it.
SESSION_OPTION = "session"

_NOT_SELECTED = "left for the next night: measured more recently than what the budget holds"


@dataclass(frozen=True)
class Earlier:
    """What an interrupted sweep holds of one case. ``settled`` is the measurement that stands, where there is one."""

    attempts: int
    failures: int
    settled: Measurement | None = None


@dataclass(frozen=True)
class AsvSession:
    """One sweep under asv. ``bundle_dir`` gets a file per commit and kernels.

    ``done_file`` lists what an interrupted sweep already holds (case key -> :class:`Earlier`); ``tag`` keeps apart
    sweeps of one commit. ``selected`` are keys of the cases that the budget holds, None for all.
    """

    bundle_dir: str
    suite: str
    device: str
    reason: Reason = Reason.MANUAL
    planned: int = 0
    deadline: float | None = None
    done_file: str | None = None
    tag: str = ""
    options: MeasureOptions = field(default_factory=MeasureOptions)
    selected: tuple[str, ...] | None = None

    def bundle(self, commit: str, kernels_hash: str) -> Path:
        """Where the bundle of one commit goes; the kernels' hash keeps apart what a commit's name does not.

        The name is for people: what a bundle holds is read from its first line (:meth:`find_bundle`).
        """
        tag = f"-{self.tag}" if self.tag else ""
        return Path(self.bundle_dir) / f"{suite_name(self.suite)}-{commit[:12]}-{kernels_hash}{tag}.jsonl"

    def find_bundle(self, commit: str) -> Path | None:
        """The bundle that children of this sweep began for ``commit``, or None."""
        folder = Path(self.bundle_dir)
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            head = head_of(path) if path.suffix == ".jsonl" else None
            if head and head.revision.commit == commit and head.options.get(SESSION_OPTION, "") == self.tag:
                return path
        return None

    def earlier(self, case_key: str) -> Earlier | None:
        """What an interrupted sweep already holds of a case."""
        if self.done_file is None:
            return None
        found = json.loads(Path(self.done_file).read_text(encoding="utf-8")).get(case_key)
        return None if found is None else from_plain(Earlier, found)

    def left_out(self, case_key: str) -> str | None:
        """Why a case is not measured in this sitting, or None where it is."""
        if self.selected is not None and case_key not in self.selected:
            return _NOT_SELECTED
        return BUDGET_ENDED if self.deadline is not None and time.time() >= self.deadline else None

    def save(self, path: Path) -> None:
        """Write to ``path``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(to_plain(self)), encoding="utf-8")


def load_session() -> AsvSession:
    """The session of this process, or the default one for a plain ``asv run``."""
    path = os.environ.get(SESSION_VARIABLE)
    if path is None:
        root = Path(os.environ.get("ASV_CONF_DIR", "."))
        suite = os.environ.get(SUITE_VARIABLE, DEFAULT_SUITE)
        return AsvSession(str(root / ".asv" / "bundles"), suite, default_device(), tag=_parent_tag())
    return read_session(Path(path))


def read_session(path: Path) -> AsvSession:
    """The session that :meth:`AsvSession.save` wrote; InputError for anything else."""
    try:
        return from_plain(AsvSession, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, InputError) as err:
        raise InputError(f"{path}: not a session file: {err}") from None


def _parent_tag() -> str:
    """Names the asv process (or its fork server) that started this child: one bundle for each ``asv run``."""
    parent = os.getppid()
    try:
        start = Path(f"/proc/{parent}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        start = "0"
    return f"{parent}-{start}"
