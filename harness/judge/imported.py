"""History that others measured: since when is what worse, and for which parameters?

It cannot be measured again, so the history has to speak for itself: a change that several later runs bear out is
confirmed by them, a newer one stays a suspect. Of each series the latest change for the worse counts that is still in
force. Judging the same runs again changes nothing; what has gone back to its level is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from db.engine import Store
from db.imported import (
    ImportedMetric,
    imported_metrics,
    imported_series,
    is_imported,
    mark_judged,
    unjudged_machines,
)
from db.queries import known_series, run
from db.repository import triage
from harness.detection.changes import Change, detect_flat
from harness.model import METRICS, TriageState
from harness.model.findings import Finding, Incident

from .incidents import gather, incident_of, save
from .suspects import OPEN, Judged, to_case
from .triggers import Triggered

#: Runs from the change on that make it sure without measuring again.
_SURE = 3
#: Findings this many runs apart are one change; noise moves its start.
_NEAR = 3
#: Smaller changes are not worth telling.
_RELEVANT = 0.02
#: Cases times starts that are explained at once.
_EXPLAINED = 25_000
#: Series are laid out by runs where gaps at most so many times the points would be filled.
_SPARSE = 4

_AUTHOR = "attnwatch"


@dataclass(frozen=True)
class _Found:
    """A change that is in force: of which series, indices of its first bad and last good run, runs from it on."""

    series: int
    at: int
    good: int
    change: Change
    later: int


@dataclass
class _Seen:
    """What one machine's history says, over its metrics.

    ``last`` is the newest run of each (case key, metric); ``run_ids`` are all runs, in order.
    """

    findings: list[Finding] = field(default_factory=list)
    judged: Judged = field(default_factory=Judged)
    last: dict[tuple[str, str], str] = field(default_factory=dict)
    run_ids: list[str] = field(default_factory=list)


def judge_imported(store: Store) -> list[Incident]:
    """Judge each machine with runs from elsewhere that were not judged yet; what is told for the first time."""
    out: list[Incident] = []
    for machine, run_ids in unjudged_machines(store).items():
        out += _judge(store, machine)
        mark_judged(store, run_ids)
    return out


def _judge(store: Store, machine: str) -> list[Incident]:
    seen = _Seen()
    foreign = is_imported(store, machine)
    for metric in imported_metrics(store, machine):
        ours = METRICS.get(metric[1])
        # Of what our ruler measured, rates and the like only repeat what times say.
        if ours is None or ours.judged or foreign:
            _look(imported_series(store, machine, metric), seen)
    known = known_series(store, machine, list(TriageState))
    unsettled = (TriageState.SUSPECT, TriageState.DISMISSED)
    held = {(k.case_key, k.metric, k.bad_since) for k in known if k.state not in unsettled}
    since = {name: r.started_at for f in seen.findings if (name := f.first_bad) and (r := run(store, name)) is not None}
    fresh = [f for f in seen.findings if (f.case.key, f.metric, since.get(f.first_bad or "")) not in held]
    saved: list[Incident] = []
    for incident in _incidents(fresh, seen):
        newest = Counter(seen.last[f.case.key, f.metric] for f in incident.findings).most_common(1)[0][0]
        incident = replace(incident, title=_title(incident))
        saved += save(store, [incident], machine=machine, head_run=newest, what_changed=[])
    _close(store, machine, seen, {i.id for i in saved})
    return [i for i in saved if i.is_new]


def _incidents(fresh: Sequence[Finding], seen: _Seen) -> list[Incident]:
    """Incidents of the newest starts with their triggers, older ones without; ``attnwatch explain`` finds those too.

    A long history holds hundreds of starts, and to explain one takes a second for some thousands of cases.
    """
    order = {name: i for i, name in enumerate(seen.run_ids)}
    starts = sorted({f.first_bad for f in fresh if f.first_bad}, key=lambda name: -order[name])
    explained = set(starts[: max(_EXPLAINED // max(seen.judged.compared, 1), 1)])
    out = gather([f for f in fresh if f.first_bad in explained], seen.judged)
    for start in starts[len(explained) :]:
        for metric in dict.fromkeys(f.metric for f in fresh):
            group = [f for f in fresh if f.first_bad == start and f.metric == metric]
            for sure in (True, False):
                part = [f for f in group if (f.state is TriageState.CONFIRMED) is sure]
                if part:
                    total = len(seen.judged.tested.get(metric, ()))
                    out.append(incident_of(Triggered(None, part, total=total), sure))
    return out


def _title(incident: Incident) -> str:
    """Where no trigger tells which cases they are, their benchmarks do."""
    if incident.trigger is not None:
        return incident.title
    names = sorted({f.case.benchmark for f in incident.findings})
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more} slower in {len(incident.findings)} of {incident.tested} cases"


def _close(store: Store, machine: str, seen: _Seen, told: set[str]) -> None:
    """Suspects that were settled, and incidents of which nothing is in force any more."""
    standing = {(f.case.key, f.metric) for f in seen.findings}
    series: dict[str, set[tuple[str, str]]] = {}
    states: dict[str, TriageState] = {}
    for k in known_series(store, machine, OPEN):
        series.setdefault(k.incident_id, set()).add((k.case_key, k.metric))
        states[k.incident_id] = TriageState(k.state)
    for name, ours in series.items():
        if name in told:
            continue
        if states[name] is TriageState.SUSPECT:
            triage(store, name, TriageState.DISMISSED, "settled by runs that were imported later", _AUTHOR)
        elif not ours & standing:
            reason = "every series is back at its level in the runs that were imported"
            triage(store, name, TriageState.FIXED, reason, _AUTHOR)


def _look(data: ImportedMetric, seen: _Seen) -> None:
    """Add what one metric shows."""
    if not data.cases:
        return
    seen.run_ids = data.run_ids
    cases = [to_case(row) for row in data.cases]
    for i, case in enumerate(cases):
        if data.start[i + 1] - data.start[i] > 1:
            seen.judged.saw(data.name, case)
        seen.last[case.key, data.name] = data.run_ids[int(data.run[data.start[i + 1] - 1])]
    seen.judged.compared += len(seen.judged.tested.get(data.name, {}))
    for found in _together(_in_force(data, _changes(data))):
        c = found.change
        sure = found.later >= _SURE
        seen.findings.append(
            Finding(
                case=cases[found.series], metric=data.name, kind="slower",
                state=TriageState.CONFIRMED if sure else TriageState.SUSPECT,
                how=f"{c.kind} in imported history, {found.later} runs from it on; it cannot be measured again",
                ratio=c.ratio, low=c.low, high=c.high, p=c.p, level=c.before,
                last_good=data.run_ids[found.good], first_bad=data.run_ids[found.at],
            )
        )  # fmt: skip


def _changes(data: ImportedMetric) -> list[list[tuple[int, Change]]]:
    """Changes of each series, each with the entry of the flat arrays at which it begins."""
    first = data.run[data.start[:-1]]
    runs = len(data.run_ids)
    filled = int((runs - first).sum())
    if filled <= _SPARSE * len(data.value):
        # Laid out by runs up to the newest one, so that series which changed together are found together.
        start = np.concatenate([[0], np.cumsum(runs - first)]).astype(np.int64)
        flat = np.full(filled, np.nan)
        of = np.repeat(np.arange(len(data.cases)), np.diff(data.start))
        flat[start[of] + data.run - first[of]] = data.value
        found = detect_flat(flat, start, pool=True, groups=[c.benchmark for c in data.cases]).changes
        return [
            [(_entry(data, i, int(first[i]) + c.index), c) for c in changes] for i, changes in enumerate(found)
        ]  # fmt: skip
    found = detect_flat(data.value, data.start).changes
    return [[(int(data.start[i]) + c.index, c) for c in changes] for i, changes in enumerate(found)]


def _entry(data: ImportedMetric, i: int, run_index: int) -> int:
    """The first entry of series ``i`` at or after a run."""
    a, b = data.start[i], data.start[i + 1]
    return int(min(a + np.searchsorted(data.run[a:b], run_index), b - 1))


def _in_force(data: ImportedMetric, changes: Sequence[list[tuple[int, Change]]]) -> list[_Found]:
    """Of each series the latest relevant change for the worse of which more than half is still there."""
    out = []
    for i, ours in enumerate(changes):
        if not ours:
            continue
        now = ours[-1][1].after
        for entry, c in reversed(ours):
            if c.verdict(data.better).value != "slower" or entry <= data.start[i]:
                continue
            step = c.after - c.before
            if (now - c.before) * np.sign(step) > abs(step) / 2 and _is_relevant(c):
                later = int(data.start[i + 1]) - entry
                out.append(_Found(i, int(data.run[entry]), int(data.run[entry - 1]), c, later))
                break
    return out


def _is_relevant(c: Change) -> bool:
    return abs(c.after - c.before) >= _RELEVANT * abs(c.before)


def _together(found: Sequence[_Found]) -> list[_Found]:
    """The same changes, starts that lie near a commoner one moved to it."""
    counts = Counter(f.at for f in found)
    out = []
    for f in found:
        near = [k for k in range(f.at - _NEAR, f.at + _NEAR + 1) if counts[k]]
        best = max(near, key=lambda k: (counts[k], -abs(k - f.at), -k))
        out.append(replace(f, at=best, good=min(f.good, best - 1) if best > 0 else f.good) if best != f.at else f)
    return out
