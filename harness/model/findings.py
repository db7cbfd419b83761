"""What judging a run says: findings per case and metric, gathered into incidents and a report."""

from __future__ import annotations

from dataclasses import dataclass, field

from .records import Case, Revision
from .terms import TriageState

#: The name under which a change of status stands where others have a metric.
STATUS = "status"

#: In what a finding rests on, before the new compiler that it came with.
CAME_WITH = "came with "


@dataclass(frozen=True)
class Finding:
    """An adverse change of one case and metric between ``base`` and ``head``.

    ``kind`` is ``slower``, ``more`` (an exact metric grew), ``status`` (worked, and fails now) or ``noisier`` (nights
    scatter more around the same level; ``ratio`` is then of the spreads). ``state`` is SUSPECT, CONFIRMED or DISMISSED;
    ``how`` tells what the state rests on. ``ratio`` is head / base with a 95 % interval; ``level`` is the value that
    the history gave and ``value`` that of the newest run (exact metrics), in the metric's unit. ``cause`` names a new
    compiler that an exact change came with, ``growth`` the exponents before and after where the whole line of cases
    grows faster. ``last_good`` and ``first_bad`` are ids of runs; ``incident`` is the open incident that already holds
    this series.
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
    value: float | None = None
    cause: str = ""
    growth: str = ""
    base_status: str = "ok"
    head_status: str = "ok"
    last_good: str | None = None
    first_bad: str | None = None
    incident: str | None = None


@dataclass(frozen=True)
class Incident:
    """Findings that share a start and, where one is found, a trigger. ``state`` is what the store holds.

    ``shadow``: found while the policy only reports, so that it alerts nobody. ``owner`` and ``severity`` are what the
    policy says of its worst finding. ``lost_s`` are the seconds that the device takes longer for it in one pass over
    the workloads, each as often as its weight says.
    """

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
    shadow: bool = False
    owner: str = ""
    severity: str = "normal"
    lost_s: float = 0.0


@dataclass(frozen=True)
class CoverageAlarm:
    """Something that was measured and is not any more. Told once, and once more when it is back.

    ``kind`` is ``nights`` (nights without a run), ``stopped`` (combinations), ``backend`` (all of a backend's),
    ``samples`` (too few valid ones) or ``invalid`` (cases that the machine disturbed). ``state`` is ``new``, ``open``
    (told on an earlier night) or ``recovered``; ``cases`` are labels; ``since`` is the run that showed it first.
    """

    kind: str
    subject: str
    state: str
    text: str
    cases: tuple[str, ...] = ()
    since: str = ""


@dataclass(frozen=True)
class Latency:
    """What one case took in the judged run: the median with its 95 % interval, seconds."""

    workload: str
    backend: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass
class NightReport:
    """One judged run. ``suite_given`` is what ``--suite`` was given: a name or a file.

    ``incidents`` were found or settled by this run; ``still_open`` names older ones that it shows again, and
    ``recovered`` those whose series are all back at their level. ``shadow`` says why nothing alerts, empty where it
    does; ``from_shadow`` are incidents found in it that nobody was told of and nobody has looked at. ``noisier`` are
    series whose spread grew; they are told once and are no incidents.
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
    shadow: str = ""
    from_shadow: list[str] = field(default_factory=list)
    coverage: list[CoverageAlarm] = field(default_factory=list)
    noisier: list[Finding] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)

    @property
    def new_confirmed(self) -> list[Incident]:
        """Incidents that turn a run red: confirmed by it, not known before, and not in shadow."""
        return [i for i in self.fresh if not i.shadow]

    @property
    def fresh(self) -> list[Incident]:
        """Incidents confirmed by this run and not known before, those in shadow too."""
        return [i for i in self.incidents if i.state is TriageState.NEW and i.is_new]

    @property
    def alarms(self) -> list[CoverageAlarm]:
        """What stopped being measured and is told by this run for the first time."""
        return [a for a in self.coverage if a.state == "new"]
