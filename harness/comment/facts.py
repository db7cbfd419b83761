"""What a comment is made of, wherever it came from. Ratios are head over base, latencies in seconds."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Literal

from harness.model.metrics import STATIC as STATIC

#: Metrics by what a person calls them. Everything else is named as it is.
MEMORY = frozenset({"peak_memory_bytes", "output_bytes", "workspace_bytes"})
LAUNCHES = frozenset({"operator_calls"})

Kind = Literal["slower", "more", "status", "gone"]


class State(enum.StrEnum):
    """What a comment says as a whole."""

    ADVERSE = "adverse"
    SUSPECT = "suspect"
    FAILED = "failed"
    NOTHING = "nothing"
    UNCHANGED = "unchanged"
    UNSETTLED = "unsettled"
    FASTER = "faster"
    CLEAN = "clean"


@dataclass(frozen=True)
class Change:
    """One case and metric between base and head; ``ratio`` is None where one side gave no number, or 0.

    ``before`` and ``after`` are the values of an exact metric, where they are known. ``terms`` is the expression that
    picks this case alone, empty where it cannot be written.
    """

    label: str
    metric: str = "latency_s"
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    base_status: str = "ok"
    head_status: str = "ok"
    detail: str = ""
    lost_s: float = 0.0
    terms: str = ""
    before: float | None = None
    after: float | None = None


@dataclass(frozen=True)
class Group:
    """Adverse changes that share a trigger, or those of one kind for which none was found (``trigger`` None).

    ``inside`` combinations are in the trigger and ``hit`` of them changed; ``outside`` and ``hit_outside`` likewise.
    ``confirmed`` where base and head were measured interleaved. ``command`` stands in for the command of all facts;
    ``cause`` is the new compiler that changes of compiled code came with.
    """

    kind: Kind
    metric: str
    trigger: str | None
    changes: tuple[Change, ...]
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    hit: int = 0
    inside: int = 0
    hit_outside: int = 0
    outside: int = 0
    confirmed: bool = True
    alternatives: tuple[str, ...] = ()
    incident: str = ""
    command: str = ""
    cause: str = ""

    @property
    def lost_s(self) -> float:
        """Seconds that one pass over the workloads takes longer."""
        return sum(c.lost_s for c in self.changes)


@dataclass(frozen=True)
class Facts:
    """One comparison. ``judged`` of ``cases`` could be compared; ``base`` and ``head`` name the sides.

    ``known`` are incidents that are still there and were told before. ``command`` begins the command that measures both
    sides again, ``--where`` to be added; empty where there is none. ``unchanged`` where head changes nothing that is
    measured, so that nobody measured it; ``unaffected`` are cases that were asked for and that the change cannot touch.
    ``left_out_kinds`` are (kind, how many) of what a budget did not reach. ``smallest_detectable`` is a share (0.02 for
    2 %), the median over what shows no change. ``brought_by`` are the commits that a search found, one where all is
    clear.
    """

    base: str = ""
    head: str = ""
    cases: int = 0
    judged: int = 0
    groups: tuple[Group, ...] = ()
    faster: tuple[Change, ...] = ()
    unsettled: tuple[Change, ...] = ()
    failed: tuple[Change, ...] = ()
    unsupported: int = 0
    left_out: int = 0
    left_out_kinds: tuple[tuple[str, int], ...] = ()
    unaffected: int = 0
    brought_by: tuple[str, ...] = ()
    unchanged: bool = False
    known: tuple[str, ...] = ()
    smallest_detectable: float | None = None
    command: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def confirmed(self) -> tuple[Group, ...]:
        """What a run turns red for."""
        return tuple(g for g in self.groups if g.confirmed)

    @property
    def state(self) -> State:
        """The one word for all of it."""
        if self.confirmed:
            return State.ADVERSE
        if self.groups:
            return State.SUSPECT
        if not self.judged and not self.failed:
            return State.UNCHANGED if self.unchanged and not self.cases else State.NOTHING
        if not self.judged:
            return State.FAILED
        if self.faster:
            return State.FASTER
        return State.UNSETTLED if len(self.unsettled) >= self.judged else State.CLEAN


def ranked(groups: list[Group]) -> tuple[Group, ...]:
    """Confirmed ones first, then what no longer works, then by seconds lost and by effect; text breaks ties."""
    rank = {"status": 0, "gone": 1, "slower": 2, "more": 3}

    def key(g: Group) -> tuple[object, ...]:
        return (not g.confirmed, rank[g.kind], -g.lost_s, -(g.effect or 0.0), g.trigger or "~", g.metric, g.incident)

    return tuple(sorted(groups, key=key))
