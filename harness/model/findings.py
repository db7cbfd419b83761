"""What judging a run says: findings per case and metric, gathered into incidents and a report."""

from __future__ import annotations

from dataclasses import dataclass, field

from .records import Case, Revision
from .terms import TriageState

#: The name under which a change of status stands where others have a metric.
STATUS = "status"


@dataclass(frozen=True)
class Finding:
    """An adverse change of one case and metric between ``base`` and ``head``.

    ``kind`` is ``slower``, ``more`` (an exact metric grew) or ``status`` (worked, and fails now). ``state`` is
    SUSPECT, CONFIRMED or DISMISSED; ``how`` tells what the state rests on. ``ratio`` is head / base with a 95 %
    interval; ``level`` is the value that the history gave, in the metric's unit. ``last_good`` and ``first_bad`` are
    ids of runs; ``incident`` is the open incident that already holds this series.
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
    last_good: str | None = None
    first_bad: str | None = None
    incident: str | None = None


@dataclass(frozen=True)
class Incident:
    """Findings that share a start and, where one is found, a trigger. ``state`` is what the store holds."""

    id: str
    title: str
    trigger: str | None
    findings: list[Finding]
    state: TriageState
    effect: float | None = None
    effect_low: float | None = None
    effect_high: float | None = None
    tested: int = 0
    is_new: bool = True
    evidence: str = ""
    alternatives: list[str] = field(default_factory=list)
    base_commit: str | None = None
    head_commit: str | None = None


@dataclass
class NightReport:
    """One judged run. ``suite_given`` is what ``--suite`` was given: a name or a file.

    ``incidents`` were found or settled by this run; ``still_open`` names older ones that it shows again, and
    ``recovered`` those whose series are all back at their level.
    """

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
    still_open: list[str] = field(default_factory=list)
    recovered: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    faster: int = 0
    compared: int = 0
    smallest_detectable: float | None = None
    missing: list[str] = field(default_factory=list)
    failures: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    what_changed: list[str] = field(default_factory=list)
    bundle: str = ""
    store: str = ""

    @property
    def new_confirmed(self) -> list[Incident]:
        """Incidents that turn a run red: confirmed by it, and not known before."""
        return [i for i in self.incidents if i.state is TriageState.NEW and i.is_new]
