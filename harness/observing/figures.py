"""Figures of a store: the newest run of each suite and machine, and what is open. No client library is needed here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from db.engine import Store
from db.health import Coverage, coverage, discarded_samples
from db.queries import incidents, row_counts
from harness.judge.suspects import OPEN
from harness.model import Status

#: name -> help. Names follow Prometheus: base units, no abbreviations.
HELP = {
    "attnwatch_store_up": "1 where the store could be read, 0 where it could not",
    "attnwatch_store_runs": "Runs in the store",
    "attnwatch_store_measurements": "Measurements in the store",
    "attnwatch_run_start_time_seconds": "Start of the newest run, since the epoch",
    "attnwatch_run_end_time_seconds": "End of the newest run, since the epoch; absent where it was broken off",
    "attnwatch_run_duration_seconds": "What the newest run took; absent where it was broken off",
    "attnwatch_run_complete": "1 where the newest run measured all it was asked for",
    "attnwatch_run_cases": "Cases of the newest run by status",
    "attnwatch_run_missing_cases": "Cases of the run before that the newest one has no record of",
    "attnwatch_run_discarded_samples": "Samples of the newest run that were thrown away, by reason",
    "attnwatch_run_error_ratio": "Failed cases of the newest run, of those that were tried; absent where none was",
    "attnwatch_incidents_open": "Open incidents by state",
}

#: Nobody tried to measure these.
_UNTRIED = frozenset(s.value for s in Status if s.absent or s is Status.DESELECTED)
_FAILED = frozenset(s.value for s in Status if s.failed)


@dataclass(frozen=True)
class Figure:
    """One number; ``name`` is a key of :data:`HELP`, values are in the unit that the name says."""

    name: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)


def figures(store: Store) -> list[Figure]:
    """All figures of a store. Labels: suite, machine (its fingerprint), device (its model), then status or reason."""
    held = row_counts(store)
    found = [
        Figure("attnwatch_store_up", 1.0), Figure("attnwatch_store_runs", held["runs"]),
        Figure("attnwatch_store_measurements", held["measurements"]),
    ]  # fmt: skip
    for newest in coverage(store):
        found += _of_run(store, newest)
    states = Counter(i.state for i in incidents(store, states=[s.value for s in OPEN]))
    return found + [Figure("attnwatch_incidents_open", states[s.value], {"state": s.value}) for s in OPEN]


def _of_run(store: Store, run: Coverage) -> Iterator[Figure]:
    labels = {"suite": run.suite, "machine": run.machine, "device": run.device_model}
    yield Figure("attnwatch_run_start_time_seconds", run.started_at, labels)
    if run.finished_at is not None:
        yield Figure("attnwatch_run_end_time_seconds", run.finished_at, labels)
        yield Figure("attnwatch_run_duration_seconds", run.finished_at - run.started_at, labels)
    yield Figure("attnwatch_run_complete", float(run.complete), labels)
    yield Figure("attnwatch_run_missing_cases", run.missing, labels)
    # All statuses, or an alert on one that never occurred would have nothing to compare with.
    for status in Status:
        yield Figure("attnwatch_run_cases", run.counts.get(status.value, 0), {**labels, "status": status.value})
    for reason, n in sorted(discarded_samples(store, run.run).items()):
        yield Figure("attnwatch_run_discarded_samples", n, {**labels, "reason": reason})
    tried = sum(n for status, n in run.counts.items() if status not in _UNTRIED)
    if tried:
        failed = sum(n for status, n in run.counts.items() if status in _FAILED)
        yield Figure("attnwatch_run_error_ratio", failed / tried, labels)
