"""The newest run against the history of its machine: which series look worse, which cases broke.

A series that an incident holds is compared with its level *before* that incident, so that a regression does not become
normal by being left alone; once people call it expected, the level after it counts instead, and once it is fixed its
nights are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from db.engine import Store
from db.history import CaseRow, History
from db.queries import KnownSeries, history, known_series
from harness.detection.screen import ScreenOptions, screen
from harness.model import METRICS, PRIMARY, Case, Status, TriageState, Workload
from harness.model.findings import STATUS, Finding

#: Runs looked back upon; a year of nights.
_MAX_RUNS = 366

#: An incident in one of these states still holds its series.
OPEN = (TriageState.SUSPECT, TriageState.NEW, TriageState.CONFIRMED, TriageState.ACKNOWLEDGED)

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass
class Judged:
    """What the history says of the newest run. ``findings`` are suspects, not yet measured again.

    ``at_level`` holds (case key, metric) of series that have a newest value and are not suspect; ``tested`` all cases
    that could be judged, per metric.
    """

    findings: list[Finding] = field(default_factory=list)
    at_level: set[tuple[str, str]] = field(default_factory=set)
    known: list[KnownSeries] = field(default_factory=list)
    compared: int = 0
    faster: int = 0
    nights: int = 0
    smallest_detectable: float | None = None
    missing: list[Case] = field(default_factory=list)
    tested: dict[str, dict[str, Case]] = field(default_factory=dict)

    def saw(self, metric: str, case: Case) -> Case:
        """Note that ``case`` could have regressed in ``metric``."""
        self.tested.setdefault(metric, {})[case.key] = case
        return case


def judge_run(store: Store, machine: str, run_id: str, options: ScreenOptions | None = None) -> Judged:
    """Screen the run ``run_id`` of the machine with this fingerprint against the runs before it."""
    options = options or ScreenOptions()
    judged = Judged(known=known_series(store, machine, [*OPEN, TriageState.EXPECTED, TriageState.FIXED]))
    for name, metric in METRICS.items():
        if not metric.judged:
            continue
        past = history(store, machine, name, until_run=run_id, max_runs=_MAX_RUNS)
        if past.value.shape[1] < 2:
            continue
        usable = _baseline(past, judged.known)
        if name == PRIMARY:
            judged.nights = past.value.shape[1] - 1
            _statuses(past, _baseline(past, judged.known, STATUS), judged)
        (_exact if metric.exact else _screen)(past, usable, options, judged)
    judged.findings.sort(key=lambda f: -(f.ratio or np.inf))
    return judged


def _baseline(past: History, known: Sequence[KnownSeries], metric: str | None = None) -> Bools:
    """Runs (columns) that may serve as the level of each series (rows); the newest run never does."""
    usable = np.ones(past.value.shape, dtype=bool)
    usable[:, -1] = False
    rows = {c.key: i for i, c in enumerate(past.cases)}
    for k in known:
        i = rows.get(k.case_key)
        if i is None or k.metric != (metric or past.metric):
            continue
        bad = past.started_at >= k.bad_since
        if k.state == TriageState.FIXED:
            bad &= past.started_at < k.updated_at
        usable[i] &= bad if k.state == TriageState.EXPECTED else ~bad
    return usable


def _screen(past: History, usable: Bools, options: ScreenOptions, judged: Judged) -> None:
    """Timed metrics: suspects by noise."""
    sign = 1.0 if METRICS[past.metric].better == "lower" else -1.0
    values = np.where(usable, past.value, np.nan)
    values[:, -1] = past.value[:, -1]
    count = len(past.cases)
    result = screen(values, log_errors(past), np.full(count, sign), np.zeros(count, dtype=bool), options)
    known = np.isfinite(result.ratio)
    if past.metric == PRIMARY:
        judged.compared = int(known.sum())
        better = known & (result.z * sign <= -options.z) & (np.abs(np.log(result.ratio)) > np.log1p(options.relevant))
        judged.faster = int(better.sum())
        if known.any():
            judged.smallest_detectable = float(np.median(result.smallest_detectable[known]))
    judged.at_level |= {(past.cases[i].key, past.metric) for i in np.flatnonzero(known & ~result.suspect)}
    for i in np.flatnonzero(known):
        judged.saw(past.metric, to_case(past.cases[i]))
    for i in np.flatnonzero(result.suspect):
        level = float(past.value[i, -1] / result.ratio[i])
        reach = 1 + float(result.smallest_detectable[i])
        good = usable[i] & (past.value[i] * sign <= level * sign * reach**sign)
        last_good, first_bad = _turn(past, i, good)
        judged.findings.append(
            Finding(
                case=to_case(past.cases[i]), metric=past.metric, kind="slower", state=TriageState.SUSPECT,
                how="newest run against the history", ratio=float(result.ratio[i]), level=level,
                smallest_detectable=float(result.smallest_detectable[i]), last_good=last_good, first_bad=first_bad,
            )
        )  # fmt: skip


def _exact(past: History, usable: Bools, options: ScreenOptions, judged: Judged) -> None:
    """Deterministic metrics: the newest value against the last usable one, on the raw scale; one unit counts."""
    sign = 1.0 if METRICS[past.metric].better == "lower" else -1.0
    for i, case in enumerate(past.cases):
        have = usable[i] & np.isfinite(past.value[i])
        head = past.value[i, -1]
        if not have.any() or not np.isfinite(head):
            continue
        judged.saw(past.metric, to_case(case))
        level = float(past.value[i, np.flatnonzero(have)[-1]])
        if (head - level) * sign <= 0:
            judged.at_level.add((case.key, past.metric))
            continue
        last_good, first_bad = _turn(past, i, have & ((past.value[i] - level) * sign <= 0))
        judged.findings.append(
            Finding(
                case=to_case(case), metric=past.metric, kind="more", state=TriageState.SUSPECT,
                how="newest run against the last one", ratio=head / level if level else None, level=level,
                smallest_detectable=0.0, last_good=last_good, first_bad=first_bad,
            )
        )  # fmt: skip


def _turn(past: History, row: int | np.signedinteger[Any], good: Bools) -> tuple[str | None, str]:
    """Run ids of the last good run and of the first one after it that has this case."""
    at = np.flatnonzero(good)
    if not len(at):
        return None, past.run_ids[-1]
    after = np.flatnonzero(past.status[row, at[-1] + 1 :] >= 0)
    return past.run_ids[at[-1]], past.run_ids[at[-1] + 1 + int(after[0])] if len(after) else past.run_ids[-1]


def log_errors(past: History) -> Floats:
    """Standard errors of log values within a run, from the stored 95 % intervals."""
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = (np.log(past.high) - np.log(past.low)) / (2 * 1.96)
    return np.asarray(np.where(np.isfinite(errors) & (errors > 0), errors, np.nan))


def _statuses(past: History, usable: Bools, judged: Judged) -> None:
    """From ok to broken is a finding of its own; from ok to nothing at all is a gap in coverage."""
    names = [*past.statuses, ""]
    broken = np.array([s != "" and Status(s).broken for s in names])
    ok = np.array([s == Status.OK.value for s in names])
    for i, case in enumerate(past.cases):
        before = np.flatnonzero(usable[i] & (past.status[i] >= 0))
        if not len(before) or not ok[past.status[i, before[-1]]]:
            continue
        head = past.status[i, -1]
        if head >= 0 and (ok[head] or broken[head]):
            judged.saw(STATUS, to_case(case))
        if head < 0:
            if past.status[i, -2] >= 0:
                judged.missing.append(to_case(case))
        elif ok[head]:
            judged.at_level.add((case.key, STATUS))
        elif broken[head]:
            last_good, first_bad = _turn(past, i, usable[i] & ok[past.status[i]])
            judged.findings.append(
                Finding(
                    to_case(case), STATUS, "status", TriageState.SUSPECT, base_status=Status.OK.value,
                    head_status=names[head], last_good=last_good, first_bad=first_bad,
                )
            )  # fmt: skip


def to_case(row: CaseRow) -> Case:
    """A stored case as the record that the worker takes."""
    return Case(row.benchmark, Workload(row.operation, row.params, row.weight), row.backend, row.version)
