"""What judging a stored run needs to know beyond the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from db.engine import Store
from db.queries import RunRow
from harness.model import MeasureOptions
from harness.model.findings import Finding
from harness.policy import Policy

Show = Callable[[int, int, str], None]
Say = Callable[[str], None]
Settle = Callable[[Store, list[Finding], RunRow, "JudgePlan", Any], list[Finding]]


@dataclass(frozen=True)
class JudgePlan:
    """How suspects can be measured again and what the report is to carry.

    ``kernels_root`` is the folder that holds the run's ``kernels``; ``repo`` is where earlier commits come from.
    ``deadline`` bounds measuring again. ``notes`` and ``bundle`` come from the sweep and go into the report. ``policy``
    says what is worth telling, and when. ``settle`` stands in for measuring suspects again.
    """

    device: str
    repo: Path
    kernels_root: str
    suite_given: str
    options: MeasureOptions = field(default_factory=MeasureOptions)
    deadline: float | None = None
    notes: tuple[str, ...] = ()
    bundle: str = ""
    policy: Policy = field(default_factory=Policy)
    settle: Settle | None = None
