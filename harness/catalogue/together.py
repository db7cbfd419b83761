"""Several faults in one night, each of which must be told apart from the others and named by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from db.engine import open_store
from harness.model import Case
from harness.replay import replay

from .replays import COUNTED, Replay, rows_where


@dataclass(frozen=True)
class Told:
    """What was said of one fault. ``flagged``: findings in its metric on all cases that it touches and on no other;
    ``exact``: one incident, whose predicate holds on the fault's cases where the known one does."""

    replay: Replay
    flagged: bool
    exact: bool
    said: tuple[str, ...]


@dataclass(frozen=True)
class Night:
    """``told`` per fault; ``others``: titles of incidents that are no fault's."""

    told: list[Told]
    others: list[str]


def run_together(
    replays: Sequence[Replay], known: Mapping[str, str], folder: Path, hidden: Sequence[str] = ()
) -> Night:
    """A night, and one with the faults of all ``replays``, whose metrics and cases tell them apart.

    ``known`` holds per fault the predicate of its cases; ``hidden`` faults are on too and should not show. Nothing is
    told by its time. The longest options hold for all.
    """
    cases: list[Case] = list({c.key: c for one in replays for c in one.cases()}.values())
    options = max((one.options for one in replays), key=lambda o: o.max_seconds)
    folder.mkdir(parents=True, exist_ok=True)
    with open_store(folder / "replay.db") as store:
        faults = ",".join([*(one.fault for one in replays), *hidden])
        report = replay(cases, faults, store, folder, options=options, policy=COUNTED)
    told, claimed = [], set()
    for one in replays:
        tested = one.cases()
        wanted = rows_where(tested, known[one.fault])
        mine = [
            i for i in report.new_confirmed if any(f.metric == one.metric and f.case.key in wanted for f in i.findings)
        ]
        hit = {f.case.key for i in mine for f in i.findings}
        shown = {f.case.key for i in mine for f in i.findings if f.metric == one.metric}
        predicates = [i.trigger for i in mine if i.trigger is not None]
        exact = len(mine) == 1 == len(predicates) and rows_where(tested, predicates[0]) == wanted
        told.append(Told(one, shown == hit == wanted, exact, tuple(str(i.trigger) for i in mine)))
        claimed |= {i.id for i in mine}
    return Night(told, [i.title for i in report.new_confirmed if i.id not in claimed])
