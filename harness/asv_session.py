"""What an asv child needs to know of the sweep it belongs to: one JSON file named by ``ATTNWATCH_SESSION``.

``attnwatch nightly`` writes it. Where there is none (a plain ``asv run``) each commit and environment gets a bundle
of its own under ``.asv/bundles``, so that nothing measured is lost.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .device import default_device
from .model import InputError, MeasureOptions, Reason
from .model.serde import from_plain, to_plain

SESSION_VARIABLE = "ATTNWATCH_SESSION"


@dataclass(frozen=True)
class AsvSession:
    """One sweep under asv. ``bundle_dir`` gets a file per commit and kernels.

    ``done_file`` lists what an interrupted sweep already measured; ``tag`` keeps apart sweeps of one commit.
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

    def bundle(self, commit: str, kernels_hash: str) -> Path:
        """The bundle of one commit; the kernels' hash keeps apart what a commit's name does not."""
        tag = f"-{self.tag}" if self.tag else ""
        return Path(self.bundle_dir) / f"{self.suite_name}-{commit[:12]}-{kernels_hash}{tag}.jsonl"

    @property
    def suite_name(self) -> str:
        """The suite's name; for a workload file the file's name."""
        return Path(self.suite).name.removesuffix(".json").removesuffix(".suite")

    def done(self, case_key: str) -> dict[str, Any] | None:
        """The measurement of a case, as plain values, that an interrupted sweep already made."""
        if self.done_file is None:
            return None
        found: dict[str, Any] | None = json.loads(Path(self.done_file).read_text(encoding="utf-8")).get(case_key)
        return found

    def save(self, path: Path) -> None:
        """Write to ``path``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(to_plain(self)), encoding="utf-8")


def load_session() -> AsvSession:
    """The session of this process, or the default one for a plain ``asv run``."""
    path = os.environ.get(SESSION_VARIABLE)
    if path is None:
        root = Path(os.environ.get("ASV_CONF_DIR", "."))
        suite = os.environ.get("ATTNWATCH_SUITE", "smoke")
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
