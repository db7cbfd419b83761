"""What was measured and is not any more: nights, combinations, backends, valid samples.

Everything is read off the stored runs of the same suite, so that judging a run again says the same: a problem that
tonight shows and the night before did not is new, one that only the night before showed has recovered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from db.coverage import SuiteRun
from db.history import History
from harness.model import Status
from harness.model.findings import CoverageAlarm

#: Runs looked back upon: what none of them measured is no longer expected.
_WINDOW = 14
#: A wait is missing nights from so many usual waits on; so many waits must be known.
_LATE, _WAITS = 1.6, 3
#: Valid samples fell where the median case keeps less than this share of its usual number.
_KEPT = 0.5
#: Share of disturbed cases that is told, where it is also so many times the usual share.
_INVALID, _INVALID_TIMES = 0.1, 3.0
#: Cases needed to speak of a backend's samples, and of a suite's disturbed cases.
_FEW = 4
_DAY = 86400.0

Ints = npt.NDArray[np.int8]

#: What a case did in a run: nothing is known (left out by a budget), gone, measured, tried without a result, disturbed.
_UNSAID, _GONE, _OK, _BROKEN, _INVALID_CODE = range(-1, 4)
_MEANS = {
    Status.OK: _OK, Status.DESELECTED: _UNSAID, Status.SKIPPED: _UNSAID, Status.UNSUPPORTED: _GONE,
    Status.INVALID: _INVALID_CODE,
}  # fmt: skip


@dataclass(frozen=True)
class _Night:
    """Problems of one column. ``gone`` are rows that stopped, ``backends`` those of which nothing is left; ``texts``
    by (kind, subject)."""

    gone: frozenset[int]
    backends: dict[str, frozenset[int]]
    texts: dict[tuple[str, str], str]


def coverage(past: History, runs: Sequence[SuiteRun]) -> list[CoverageAlarm]:
    """Alarms of the newest of ``runs`` (one suite and reason, oldest first), each a column of ``past``."""
    column = {run_id: j for j, run_id in enumerate(past.run_ids)}
    known = [(r, column[r.id]) for r in runs if r.id in column]
    if len(known) < 2:
        return []
    runs, columns = [r for r, _ in known], [j for _, j in known]
    state = _states(past, columns, runs)
    last = len(runs) - 1
    now, before = (_night(past, columns, state, j) for j in (last, last - 1))
    back = state[:, last] == _OK
    out = _late(runs) + _backends(past, now, before, back, runs)
    covered = frozenset().union(*now.backends.values(), *before.backends.values())
    out += _stopped(past, now.gone - covered, before.gone - covered, back, runs)
    for key in sorted({*now.texts, *before.texts}):
        told = "open" if key in now.texts and key in before.texts else "new" if key in now.texts else "recovered"
        text = now.texts.get(key) or f"{key[1]}: as many valid measurements as before again"
        out.append(CoverageAlarm(key[0], key[1], told, text, since=runs[last].id if told == "new" else ""))
    return out


def _states(past: History, columns: Sequence[int], runs: Sequence[SuiteRun]) -> Ints:
    """What each case did in each run: [cases, runs]; where a run says nothing, what the run before it said."""
    codes = np.array([_MEANS.get(Status(s), _BROKEN) for s in past.statuses] + [_GONE], dtype=np.int8)
    state = codes[past.status[:, columns]]
    for j, run in enumerate(runs):
        if not run.complete:
            # Broken off: what it did not come to is not gone.
            state[past.status[:, columns[j]] < 0, j] = _UNSAID
        if j:
            unsaid = state[:, j] == _UNSAID
            state[unsaid, j] = state[unsaid, j - 1]
    return state


def _night(past: History, columns: Sequence[int], state: Ints, j: int) -> _Night:
    window = range(max(0, j - _WINDOW), j)
    usual = (state[:, window] == _OK).any(axis=1) if len(window) else np.zeros(len(state), dtype=bool)
    gone = usual & (state[:, j] == _GONE)
    of: dict[str, list[int]] = defaultdict(list)
    for i in np.flatnonzero(usual).tolist():
        of[past.cases[i].backend].append(i)
    lost = {name: frozenset(rows) for name, rows in of.items() if all(gone[i] for i in rows)}
    return _Night(frozenset(np.flatnonzero(gone).tolist()), lost, _samples(past, columns, state, j, window))


def _samples(
    past: History, columns: Sequence[int], state: Ints, j: int, window: range
) -> dict[tuple[str, str], str]:  # fmt: skip
    """Too few valid samples, over the suite or one backend, and too many disturbed cases."""
    texts: dict[tuple[str, str], str] = {}
    if len(window) < _WAITS:
        return texts
    counted = np.where(state == _OK, past.n[:, columns], 0)
    earlier = np.where(counted[:, window] > 0, counted[:, window], np.nan)
    both = np.flatnonzero((counted[:, j] > 0) & (np.isfinite(earlier).sum(axis=1) >= _WAITS))
    kept = counted[both, j] / np.nanmedian(earlier[both], axis=1) if len(both) else np.zeros(0)
    if len(both) >= _FEW and np.median(kept) < _KEPT:
        texts["samples", "suite"] = _fewer("the suite", kept)
    else:
        names = np.array([past.cases[i].backend for i in both])
        for name in np.unique(names):
            mine = kept[names == name]
            if len(mine) >= _FEW and np.median(mine) < _KEPT:
                texts["samples", str(name)] = _fewer(str(name), mine)
    tried = (past.status[:, columns] >= 0) & (state >= _OK)
    disturbed = (tried & (state == _INVALID_CODE)).sum(axis=0) / np.maximum(tried.sum(axis=0), 1)
    usual = float(np.median(disturbed[list(window)]))
    if tried[:, j].sum() >= _FEW and disturbed[j] >= max(_INVALID, _INVALID_TIMES * usual):
        share = f"{disturbed[j]:.0%} of the cases were disturbed by the machine (invalid), {usual:.0%} usually"
        texts["invalid", "suite"] = share
    return texts


def _fewer(what: str, kept: npt.NDArray[np.float64]) -> str:
    return f"{what}: valid samples fell to {np.median(kept):.0%} of the usual number (median of {len(kept)} cases)"


def _late(runs: Sequence[SuiteRun]) -> list[CoverageAlarm]:
    starts = [r.started_at for r in runs]
    usual = usual_wait(starts[:-1])
    wait = starts[-1] - starts[-2]
    if usual is None or wait <= _LATE * usual:
        return []
    lacking = max(round(wait / usual) - 1, 1)
    nights = "night" if lacking == 1 else "nights"
    days = f"{wait / _DAY:.1f} days between the last two, {usual / _DAY:.1f} usually"
    text = f"{lacking} {nights} without a run: {days}"
    return [CoverageAlarm("nights", "suite", "new", text, since=runs[-1].id)]


def usual_wait(starts: Sequence[float]) -> float | None:
    """Median seconds between runs that began at ``starts`` (oldest first); None where too few are known."""
    waits = np.diff(np.asarray(starts, dtype=float)[-_WINDOW - 1 :])
    return float(np.median(waits)) if len(waits) >= _WAITS and np.median(waits) > 0 else None


def overdue(starts: Sequence[float], now: float) -> float | None:
    """Seconds since the last run where that is longer than runs usually wait for each other, else None."""
    usual = usual_wait(starts)
    return now - starts[-1] if usual is not None and now - starts[-1] > _LATE * usual else None


def _backends(
    past: History, now: _Night, before: _Night, back: npt.NDArray[np.bool_], runs: Sequence[SuiteRun]
) -> list[CoverageAlarm]:
    out = []
    for name, rows in now.backends.items():
        told = "open" if name in before.backends else "new"
        why = _why(past, rows)
        text = f"{name} vanished: none of its {len(rows)} combinations ran" + (f" ({why})" if why else "")
        out.append(
            CoverageAlarm("backend", name, told, text, _labels(past, rows), runs[-1].id if told == "new" else "")
        )
    for name, rows in before.backends.items():
        again = [i for i in sorted(rows) if back[i]]
        if name not in now.backends and again:
            text = f"{name} is back: {len(again)} of its {len(rows)} combinations ran"
            out.append(CoverageAlarm("backend", name, "recovered", text, _labels(past, again)))
    return out


def _why(past: History, rows: frozenset[int]) -> str:
    """``unsupported`` where the newest run said so of all; nothing where they were not part of it."""
    codes = {int(past.status[i, -1]) for i in rows}
    return past.statuses[codes.pop()] if len(codes) == 1 and min(codes) >= 0 else ""


def _stopped(
    past: History, now: frozenset[int], before: frozenset[int], back: npt.NDArray[np.bool_], runs: Sequence[SuiteRun]
) -> list[CoverageAlarm]:
    groups = {
        "new": now - before, "open": now & before, "recovered": frozenset(i for i in before - now if back[i]),
    }  # fmt: skip
    words = {"new": "stopped running", "open": "still do not run", "recovered": "run again"}
    out = []
    for told, rows in groups.items():
        by_backend: dict[str, list[int]] = defaultdict(list)
        for i in sorted(rows):
            by_backend[past.cases[i].backend].append(i)
        for name, mine in by_backend.items():
            what = f"{len(mine)} combination{'s' if len(mine) > 1 else ''} of {name} {words[told]}"
            since = runs[-1].id if told == "new" else ""
            out.append(CoverageAlarm("stopped", name, told, what, _labels(past, mine), since))
    return out


def _labels(past: History, rows: Sequence[int] | frozenset[int]) -> tuple[str, ...]:
    return tuple(f"{past.cases[i].backend} {past.cases[i].label}" for i in sorted(rows))
