"""The newest run against the history of its machine: which series look worse, which cases broke."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from db.engine import Store
from db.history import CaseRow, History
from db.queries import history
from harness.detection.screen import ScreenOptions, screen
from harness.model import METRICS, PRIMARY, Case, Status, TriageState, Workload
from harness.model.findings import Finding

#: Runs looked back upon; a year of nights.
_MAX_RUNS = 366


@dataclass
class Judged:
    """What the history says of the newest run. ``findings`` are suspects, not yet measured again."""

    findings: list[Finding] = field(default_factory=list)
    compared: int = 0
    faster: int = 0
    nights: int = 0
    base_run: str | None = None
    base_revision: str | None = None
    smallest_detectable: float | None = None
    missing: list[Case] = field(default_factory=list)


def judge_run(store: Store, machine: str, run_id: str, options: ScreenOptions = ScreenOptions()) -> Judged:  # noqa: B008
    """Screen the run ``run_id`` of the machine with this fingerprint against the runs before it."""
    judged = Judged()
    for name, metric in METRICS.items():
        if not metric.judged:
            continue
        past = history(store, machine, name, until_run=run_id, max_runs=_MAX_RUNS)
        if name == PRIMARY:
            _statuses(past, judged)
        _screen(past, options, judged)
    judged.findings.sort(key=lambda f: -(f.ratio or np.inf))
    return judged


def _screen(past: History, options: ScreenOptions, judged: Judged) -> None:
    metric = METRICS[past.metric]
    if past.value.shape[1] < 2:
        return
    adverse = np.full(len(past.cases), 1.0 if metric.better == "lower" else -1.0)
    exact = np.full(len(past.cases), metric.exact)
    result = screen(past.value, log_errors(past), adverse, exact, options)
    if past.metric == PRIMARY:
        known = np.isfinite(result.ratio)
        judged.compared = int(known.sum())
        judged.faster = int((known & (result.z * adverse <= -options.z) & (result.ratio < 1 - options.relevant)).sum())
        if known.any():
            judged.smallest_detectable = float(np.median(result.smallest_detectable[known]))
    for i in np.flatnonzero(result.suspect):
        judged.findings.append(
            Finding(
                case=to_case(past.cases[i]), metric=past.metric, kind="more" if metric.exact else "slower",
                state=TriageState.SUSPECT, how="newest run against the history",
                ratio=float(result.ratio[i]), level=float(past.value[i, -1] / result.ratio[i]),
                smallest_detectable=float(result.smallest_detectable[i]),
            )
        )  # fmt: skip


def log_errors(past: History) -> npt.NDArray[np.float64]:
    """Standard errors of log values within a run, from the stored 95 % intervals."""
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = (np.log(past.high) - np.log(past.low)) / (2 * 1.96)
    return np.asarray(np.where(np.isfinite(errors) & (errors > 0), errors, np.nan))


def _statuses(past: History, judged: Judged) -> None:
    """From ok to failed is a finding of its own; from ok to nothing at all is a gap in coverage."""
    runs = past.value.shape[1]
    judged.nights = runs - 1
    if runs < 2:
        return
    names = [*past.statuses, ""]
    failed = np.array([s != "" and Status(s).failed for s in names])
    ok = np.array([s == Status.OK.value for s in names])
    head, before = past.status[:, -1], past.status[:, :-1]
    ran = before >= 0
    last = np.where(ran.any(axis=1), before[np.arange(len(before)), _last(ran)], -1)
    for i in np.flatnonzero(ok[last]):
        case = to_case(past.cases[i])
        if head[i] < 0:
            if past.status[i, -2] >= 0:
                judged.missing.append(case)
        elif failed[head[i]]:
            judged.findings.append(
                Finding(case, "status", "status", TriageState.SUSPECT, how="failed twice in this run",
                        base_status=names[last[i]], head_status=names[head[i]])
            )  # fmt: skip


def _last(ran: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Column of the last True of each row."""
    return np.asarray(ran.shape[1] - 1 - np.argmax(ran[:, ::-1], axis=1))


def base_runs(store: Store, machine: str, run_id: str, cases: Sequence[Case]) -> dict[str, str]:
    """For each case key the newest earlier run in which the case was ok."""
    past = history(store, machine, PRIMARY, until_run=run_id, max_runs=_MAX_RUNS)
    if Status.OK.value not in past.statuses:
        return {}
    ok = past.status[:, :-1] == past.statuses.index(Status.OK.value)
    found = (
        {c.key: past.run_ids[j] for c, row, j in zip(past.cases, ok, _last(ok), strict=True) if row.any()}
        if ok.size
        else {}
    )
    return {c.key: found[c.key] for c in cases if c.key in found}


def to_case(row: CaseRow) -> Case:
    """A stored case as the record that the worker takes."""
    return Case(row.benchmark, Workload(row.operation, row.params, row.weight), row.backend, row.version)
