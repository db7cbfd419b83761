"""The newest run against the history of its machine: which series look worse, which cases broke.

A series that an incident holds is compared with its level *before* that incident, so that a regression does not become
normal by being left alone; once people call it expected, the level after it counts instead, and once it is fixed its
nights are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from db.coverage import runs_alike
from db.engine import Store
from db.history import CaseRow, History
from db.queries import KnownSeries, controls, history, known_series, run
from harness.detection.screen import ScreenOptions, screen
from harness.detection.suite import SuiteOptions, Suspect, control_drift, judge_suite
from harness.model import METRICS, PRIMARY, Case, Status, TriageState, Workload
from harness.model.findings import STATUS, CoverageAlarm, Finding
from harness.model.metrics import STATIC
from harness.model.terms import COMPILE_TARGET
from harness.policy import NO_POLICY, Policy

from .coverage import coverage
from .growth import growths

#: Runs looked back upon; a year of nights.
_MAX_RUNS = 366

#: Runs of the same suite that coverage is read off.
_ALIKE = 30

#: Controls that moved less are noise of the controls; more than the other is no drift but another machine.
_DRIFT_NOISE, _DRIFT_MOST = 0.03, 0.5

#: An incident in one of these states still holds its series.
OPEN = (TriageState.SUSPECT, TriageState.NEW, TriageState.CONFIRMED, TriageState.ACKNOWLEDGED)

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass
class Judged:
    """What the history says of the newest run. ``findings`` are suspects, not yet measured again.

    ``at_level`` holds (case key, metric) of series that have a newest value and are not suspect; ``tested`` all cases
    that could be judged, per metric. ``noisier`` series scatter more than before, at the same level.
    """

    findings: list[Finding] = field(default_factory=list)
    at_level: set[tuple[str, str]] = field(default_factory=set)
    known: list[KnownSeries] = field(default_factory=list)
    compared: int = 0
    faster: int = 0
    nights: int = 0
    smallest_detectable: float | None = None
    drift: float = 0.0
    coverage: list[CoverageAlarm] = field(default_factory=list)
    noisier: list[Finding] = field(default_factory=list)
    tested: dict[str, dict[str, Case]] = field(default_factory=dict)

    def saw(self, metric: str, case: Case) -> Case:
        """Note that ``case`` could have regressed in ``metric``."""
        self.tested.setdefault(metric, {})[case.key] = case
        return case


def judge_run(store: Store, machine: str, run_id: str, policy: Policy = NO_POLICY) -> Judged:
    """Screen the run ``run_id`` of the machine with this fingerprint against the runs before it.

    What is certainly smaller than the policy's minimum effect is no suspect.
    """
    judged = Judged(known=known_series(store, machine, [*OPEN, TriageState.EXPECTED, TriageState.FIXED]))
    compiled = (head := run(store, run_id)) is not None and head.device_kind == COMPILE_TARGET
    for name, metric in METRICS.items():
        # Compiled code has metrics of its own; statuses and coverage are looked at with the primary one.
        if not metric.judged or (name != PRIMARY and (name in STATIC) != compiled):
            continue
        past = history(store, machine, name, until_run=run_id, max_runs=_MAX_RUNS)
        if past.value.shape[1] < 2:
            continue
        usable = _baseline(past, judged.known)
        if name == PRIMARY:
            judged.nights = past.value.shape[1] - 1
            _statuses(past, _baseline(past, judged.known, STATUS), judged)
            judged.coverage = coverage(past, runs_alike(store, run_id, limit=_ALIKE))
        least = np.array([policy.minimum_effect(c.columns, name) for c in past.cases])
        if metric.exact:
            _exact(past, usable, least, judged)
        elif not compiled:
            _timed(past, usable, least, _drift(store, past.run_ids), judged)
    if compiled:
        judged.compared = len(set().union(*judged.tested.values()))
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


def _timed(past: History, usable: Bools, least: Floats, drift: Floats, judged: Judged) -> None:
    """Timed metrics: suspects by noise, pooled over the suite, with the machine's own drift taken out.

    ``least`` [series]: smallest relative change worth telling.
    """
    sign = 1.0 if METRICS[past.metric].better == "lower" else -1.0
    values = np.where(usable, past.value, np.nan)
    values[:, -1] = past.value[:, -1]
    told, smallest, spread = judge_values(
        values, log_errors(past), drift, sign, [c.backend for c in past.cases], float(least.min(initial=np.inf))
    )
    effects = {(k.case_key, k.metric): k.ratio for k in judged.known if k.state in OPEN}
    has = np.isfinite(values[:, -1]) & np.isfinite(values[:, :-1]).any(axis=1)
    for i in np.flatnonzero(has):
        case = judged.saw(past.metric, to_case(past.cases[i]))
        suspect = told.get(int(i))
        if suspect is None or not suspect.adverse or _too_small(suspect, float(least[i])):
            suspect = _still_off(int(i), values[i], sign, effects.get((case.key, past.metric)))
        if suspect is None:
            judged.at_level.add((case.key, past.metric))
            continue
        last_good, first_bad = _turn(past, i, usable[i] & np.isfinite(values[i]), before=suspect.start)
        judged.findings.append(
            Finding(
                case=case, metric=past.metric, kind="slower", state=TriageState.SUSPECT,
                how=f"{suspect.kind} in the history", ratio=suspect.ratio or suspect.after / suspect.before,
                low=suspect.low, high=suspect.high, p=suspect.p, level=suspect.before,
                smallest_detectable=_known(smallest[i]), last_good=last_good, first_bad=first_bad,
            )
        )  # fmt: skip
    suspected = {f.case.key for f in judged.findings if f.metric == past.metric}
    for row, (fold, nights) in spread.items():
        case = to_case(past.cases[row])
        if case.key not in suspected:
            how = f"spread over the last {nights} nights {fold:.1f} times that before, at the same level"
            judged.noisier.append(Finding(case, past.metric, "noisier", TriageState.SUSPECT, how, ratio=fold))
    if past.metric == PRIMARY:
        judged.compared = int(has.sum())
        judged.faster = sum(not s.adverse for i, s in told.items() if has[i])
        smallest = smallest[has & np.isfinite(smallest)]
        judged.smallest_detectable = float(np.median(smallest)) if len(smallest) else None
        judged.drift = float(np.expm1(drift[-1]))


def _too_small(suspect: Suspect, least: float) -> bool:
    """Whether even the most that the change can be is less than ``least``, a relative change, either way."""
    ends = [x for x in (suspect.ratio, suspect.low, suspect.high) if x is not None and x > 0]
    return bool(ends) and max(abs(float(np.log(x))) for x in ends) < np.log1p(least)


def judge_values(
    values: Floats, errors: Floats, drift: Floats, sign: float, groups: list[str], least: float
) -> tuple[dict[int, Suspect], Floats, dict[int, tuple[float, int]]]:
    """Newest suspect per series, its ``start`` a column of ``values``, the smallest detectable change per series, and
    the series that became noisier: row -> (fold, nights).

    Series with too few known values for a history of their own (new ones, ones with masked nights) are judged on their
    last few known values, side by side; the others on the whole matrix.
    """
    enough = SuiteOptions().enough
    short = np.isfinite(values).sum(axis=1) < enough
    cleaned = values * np.exp(-drift)
    told: dict[int, Suspect] = {}
    wider: dict[int, tuple[float, int]] = {}
    smallest = np.full(len(values), np.nan)
    whole = np.tile(np.arange(values.shape[1]), (len(values), 1))
    # All series serve as the suite whose noise is pooled, in both views; each is told of in the one that is its own.
    for mine, at in ((~short, whole), (short, _last_known(values, enough - 1))):
        if not mine.any():
            continue
        result = judge_suite(
            _take(cleaned, at), errors=_take(errors, at), adverse=np.full(len(values), sign), groups=groups
        )
        smallest[mine] = result.smallest[mine]
        for s in result.suspects:
            if mine[s.series]:
                told.setdefault(s.series, replace(s, start=int(max(at[s.series, s.start], 0))))
        if at is whole and result.spread is not None:
            grown = result.spread
            wider = {i: (float(grown.fold[i]), int(grown.nights[i])) for i in np.flatnonzero(grown.hit & mine).tolist()}
    _add_far_nights(told, smallest, cleaned, errors, sign, least)
    return told, smallest, wider


def _add_far_nights(
    told: dict[int, Suspect], smallest: Floats, cleaned: Floats, errors: Floats, sign: float, least: float
) -> None:  # fmt: skip
    """One night far from its history is asked about at once.

    The engine wants to be quiet by itself and waits for a second night where histories are short or the suite has had
    such nights. Here every suspect is measured again, so that asking early costs seconds and no false alarm.
    """
    last = cleaned.shape[1] - 1
    rows = len(cleaned)
    options = ScreenOptions(relevant=least if np.isfinite(least) else ScreenOptions().relevant)
    seen = screen(cleaned, errors, np.full(rows, sign), np.zeros(rows, dtype=bool), options)
    for i in np.flatnonzero(seen.suspect):
        known = told.get(int(i))
        if known is None or not known.adverse:
            after = float(cleaned[i, -1])
            ratio = float(seen.ratio[i])
            told[int(i)] = Suspect(int(i), last, ratio, None, None, after / ratio, after, 1.0, 1.0, "night", True)
    unknown = ~np.isfinite(smallest)
    smallest[unknown] = seen.smallest_detectable[unknown]


def _take(a: Floats, at: npt.NDArray[np.intp]) -> Floats:
    """Columns ``at`` of each row, NaN where -1."""
    return np.where(at >= 0, np.take_along_axis(a, np.maximum(at, 0), 1), np.nan)


def _last_known(values: Floats, width: int) -> npt.NDArray[np.intp]:
    """Columns of the last ``width`` known values of each row, right-aligned; -1 where there are fewer."""
    out = np.full((len(values), width), -1, dtype=np.intp)
    for i, row in enumerate(values):
        known = np.flatnonzero(np.isfinite(row))[-width:]
        out[i, width - len(known) :] = known
    return out


def _still_off(i: int, row: Floats, sign: float, ratio: float | None) -> Suspect | None:
    """The newest value as a suspect where it keeps more than half of a known incident's effect: unremarkable by itself
    is not yet recovered."""
    if ratio is None or ratio <= 0 or ratio == 1:
        return None
    before, after = float(np.nanmedian(row[:-1])), float(row[-1])
    if (np.log(after) - np.log(before)) * sign <= 0.5 * abs(np.log(ratio)):
        return None
    return Suspect(i, len(row) - 1, after / before, None, None, before, after, 1.0, 1.0, "known effect", True)


def _known(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None


def _drift(store: Store, run_ids: Sequence[str]) -> Floats:
    """What the machine itself did in each run, on the log scale, from its frozen control kernels."""
    held = controls(store, run_ids)
    names = sorted({n for values in held.values() for n in values})
    matrix = np.full((len(names), len(run_ids)), np.nan)
    for j, run_id in enumerate(run_ids):
        for i, name in enumerate(names):
            values = [v.value for v in held[run_id].get(name, [])]
            if values:
                # The quickest: a control that was disturbed says nothing of the machine's speed.
                matrix[i, j] = min(values)
    drift = control_drift(matrix) if len(names) else np.zeros(len(run_ids))
    return np.clip(np.where(np.abs(drift) < _DRIFT_NOISE, 0.0, drift), -_DRIFT_MOST, _DRIFT_MOST)


def _exact(past: History, usable: Bools, least: Floats, judged: Judged) -> None:
    """Deterministic metrics: the newest value against the last usable one, on the raw scale; one unit counts, unless
    the policy asks for more (``least`` [series], relative)."""
    sign = 1.0 if METRICS[past.metric].better == "lower" else -1.0
    growing = _growing(past, usable) if sign > 0 else {}
    for i, case in enumerate(past.cases):
        have = usable[i] & np.isfinite(past.value[i])
        head = past.value[i, -1]
        if not have.any() or not np.isfinite(head):
            continue
        judged.saw(past.metric, to_case(case))
        level = float(past.value[i, np.flatnonzero(have)[-1]])
        if (head - level) * sign <= METRICS[past.metric].slack or abs(head - level) < least[i] * abs(level):
            judged.at_level.add((case.key, past.metric))
            continue
        last_good, first_bad = _turn(past, i, have & ((past.value[i] - level) * sign <= 0))
        judged.findings.append(
            Finding(
                case=to_case(case), metric=past.metric, kind="more", state=TriageState.SUSPECT,
                how="newest run against the last one", ratio=head / level if level else None, level=level,
                value=float(head), smallest_detectable=0.0, last_good=last_good, first_bad=first_bad,
                growth=growing.get(i, ""),
            )
        )  # fmt: skip


def _growing(past: History, usable: Bools) -> dict[int, str]:
    """Rows whose metric grows faster along an axis of the sweep than it did at the last usable night."""
    before = np.full(len(past.cases), np.nan)
    for i, row in enumerate(past.value):
        known = np.flatnonzero(usable[i] & np.isfinite(row))
        before[i] = row[known[-1]] if len(known) else np.nan
    changed = np.isfinite(before) & (past.value[:, -1] > before)
    return growths([to_case(c).columns for c in past.cases], before, past.value[:, -1]) if changed.any() else {}


def _turn(
    past: History, row: int | np.signedinteger[Any], good: Bools, before: int | None = None
) -> tuple[str | None, str]:
    """Run ids of the last good run (``before`` a column, where given) and of the first one after it with this case."""
    at = np.flatnonzero(good[:before])
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
    """From ok to broken is a finding of its own; from ok to nothing at all is for :mod:`coverage` to tell."""
    names = [*past.statuses, ""]
    broken = np.array([s != "" and Status(s).broken for s in names])
    ok = np.array([s == Status.OK.value for s in names])
    # Left out by a budget or a choice: says nothing either way.
    unsaid = np.array([s in (Status.DESELECTED.value, Status.SKIPPED.value) for s in names])
    for i, case in enumerate(past.cases):
        before = np.flatnonzero(usable[i] & (past.status[i] >= 0) & ~unsaid[past.status[i]])
        if not len(before) or not ok[past.status[i, before[-1]]]:
            continue
        head = past.status[i, -1]
        if head >= 0 and (ok[head] or broken[head]):
            judged.saw(STATUS, to_case(case))
        if head < 0:
            continue
        if ok[head]:
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
