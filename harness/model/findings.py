"""What judging a run says: findings per case and metric, gathered into a report."""

from __future__ import annotations

from dataclasses import dataclass, field

from .records import Case, Revision
from .terms import TriageState


@dataclass(frozen=True)
class Finding:
    """An adverse change of one case and metric between ``base`` and ``head``.

    ``kind`` is ``slower``, ``more`` (an exact metric grew) or ``status`` (worked, and fails now). ``state`` is
    SUSPECT, CONFIRMED or DISMISSED; ``how`` tells what the state rests on. ``ratio`` is head / base with a 95 %
    interval; ``level`` is the value that the history gave, in the metric's unit.
    """

    case: Case
    metric: str
    kind: str
    state: TriageState
    how: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    smallest_detectable: float | None = None
    level: float | None = None
    base_status: str = "ok"
    head_status: str = "ok"


@dataclass(frozen=True)
class Incident:
    """Findings that share a start and, where one is found, a trigger."""

    id: str
    title: str
    trigger: str | None
    findings: list[Finding]
    state: TriageState
    effect: float | None = None
    effect_low: float | None = None
    effect_high: float | None = None
    tested: int = 0


@dataclass
class NightReport:
    """One judged run. ``suite_given`` is what ``--suite`` was given: a name or a file."""

    run_id: str
    suite: str
    suite_given: str
    revision: Revision
    machine: str
    fingerprint: str
    started_at: float
    duration_s: float
    counts: dict[str, int]
    base_run: str | None = None
    base_revision: Revision | None = None
    nights: int = 0
    incidents: list[Incident] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    faster: int = 0
    compared: int = 0
    smallest_detectable: float | None = None
    missing: list[str] = field(default_factory=list)
    failures: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    suspects_from: list[str] = field(default_factory=list)
    bundle: str = ""
    store: str = ""

    @property
    def new_confirmed(self) -> list[Incident]:
        """Incidents that turn a run red."""
        return [i for i in self.incidents if i.state is TriageState.NEW]
