"""Cached queries, each keyed by :func:`mark`: what was ingested, judged or triaged is seen on the next look.

What is kept are records that nobody changes, so they are shared and not copied. Each cache holds few entries, since a
changed mark makes all older ones useless.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from db import queries, screens
from db.engine import Store, open_store
from db.queries import CaseRow, EnvironmentRow, IncidentDetail, MachineRow, MeasurementRow, Point, RunRow
from db.repository import TRANSITIONS, set_owner, triage
from db.screens import (
    AtlasPage,
    Attempt,
    CaseValues,
    Coverage,
    EnvironmentStep,
    Holdings,
    IncidentPage,
    Pair,
    RetryCell,
    Trouble,
)
from harness.model import TriageState, Value

#: A page says that the store is busy rather than waiting for longer, seconds.
_PATIENCE_S = 3.0


def url() -> str | None:
    """Address of the store; None is the default place."""
    return os.environ.get("ATTNWATCH_DB") or None


def report(name: str) -> str | None:
    """Text of a file among the reports (``ATTNWATCH_REPORTS``, else ``reports``); None where there is none."""
    try:
        return (Path(os.environ.get("ATTNWATCH_REPORTS") or "reports") / name).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def read_only() -> bool:
    """True where nobody may triage."""
    return bool(os.environ.get("ATTNWATCH_READ_ONLY"))


def store() -> Store:
    """The store that the dashboard was opened on."""
    address = url()
    path = Path((address or "attnwatch.db").removeprefix("sqlite:///"))
    try:
        file = path.stat()
        identity = f"{file.st_dev}.{file.st_ino}"
    except (OSError, ValueError):
        identity = ""
    return _open(address, identity)


@st.cache_resource(max_entries=2, show_spinner=False)
def _open(address: str | None, identity: str) -> Store:
    # The identity of the file is a key: another file in its place is another store.
    return open_store(address, create=False, read_only=True, lock_timeout_s=_PATIENCE_S)


def mark() -> str:
    """Changes with whatever changes in the store."""
    return screens.mark(store())


@st.cache_resource(max_entries=2, show_spinner=False)
def holdings(mark: str) -> Holdings:
    """What there is to choose from."""
    return screens.holdings(store())


@st.cache_resource(max_entries=2, show_spinner=False)
def coverage(mark: str) -> list[Coverage]:
    """The newest run of each suite on each machine."""
    return screens.coverage(store())


@st.cache_resource(max_entries=16, show_spinner=False)
def incident_page(
    mark: str, states: tuple[str, ...] | None, backend: str | None, machine: str | None, words: str, limit: int,
    offset: int,
) -> IncidentPage:  # fmt: skip
    """Incidents under filters."""
    return screens.incident_page(
        store(), states=states, backend=backend, machine=machine, words=words, limit=limit, offset=offset
    )


@st.cache_resource(max_entries=2, show_spinner=False)
def incident(mark: str, incident_id: str) -> IncidentDetail | None:
    """An incident with its regressions and triage."""
    return queries.incident(store(), incident_id)


@st.cache_resource(max_entries=4, show_spinner=False)
def runs(mark: str, machine: str | None = None, limit: int = 200) -> list[RunRow]:
    """The newest runs."""
    return queries.runs(store(), limit=limit, machine=machine)


@st.cache_resource(max_entries=16, show_spinner=False)
def run(mark: str, run_id: str) -> RunRow | None:
    """A run by its id."""
    return queries.run(store(), run_id)


@st.cache_resource(max_entries=2, show_spinner=False)
def machines(mark: str) -> list[MachineRow]:
    """All machines."""
    return queries.machines(store())


@st.cache_resource(max_entries=16, show_spinner=False)
def environment(mark: str, run_id: str) -> EnvironmentRow | None:
    """What surrounded a run."""
    return queries.environment_of_run(store(), run_id)


@st.cache_resource(max_entries=4, show_spinner=False)
def steps(mark: str, machine: str) -> list[EnvironmentStep]:
    """Upgrades of a machine."""
    return screens.environment_steps(store(), machine)


@st.cache_resource(max_entries=16, show_spinner=False)
def series(mark: str, metric: str, machine: str, cases: tuple[str, ...]) -> dict[str, list[Point]]:
    """Points of some cases."""
    return queries.series(store(), metric, machine, cases)


@st.cache_resource(max_entries=8, show_spinner=False)
def atlas(mark: str, machine: str, metric: str, filters: tuple[tuple[str, Any], ...]) -> AtlasPage:
    """A page of series; ``filters`` are the keyword arguments of :func:`db.screens.atlas`."""
    return screens.atlas(store(), machine, metric, **dict(filters))


@st.cache_resource(max_entries=1, show_spinner=False)
def pairs(mark: str, metric: str, base: str, head: str, benchmarks: tuple[str, ...] | None) -> list[Pair]:
    """Cases of two runs side by side."""
    return screens.pairs(store(), metric, base, head, benchmarks=benchmarks)


@st.cache_resource(max_entries=1, show_spinner=False)
def case_values(
    mark: str, run_id: str, metrics: tuple[str, ...], benchmark: str | None, without: tuple[str, ...] = (),
    limit: int | None = None,
) -> list[CaseValues]:  # fmt: skip
    """Cases of a run with metrics. These are the largest records, so only the last ones asked for are kept."""
    return screens.case_values(store(), run_id, metrics, benchmark=benchmark, without=without, limit=limit)


@st.cache_resource(max_entries=2, show_spinner=False)
def measurements(mark: str, run_id: str) -> list[MeasurementRow]:
    """Measurements of a run with all that was kept, for runs of some hundreds of cases."""
    return queries.measurements_of_run(store(), run_id)


@st.cache_resource(max_entries=16, show_spinner=False)
def benchmarks(mark: str, run_id: str) -> dict[str, int]:
    """Benchmarks of a run with their numbers of cases."""
    return screens.benchmarks_of_run(store(), run_id)


@st.cache_resource(max_entries=16, show_spinner=False)
def attempt(mark: str, run_id: str, case_key: str) -> Attempt | None:
    """What one measurement tells beyond numbers."""
    return screens.attempt(store(), run_id, case_key)


@st.cache_resource(max_entries=16, show_spinner=False)
def samples(mark: str, measurement_id: int, metric: str) -> dict[str, dict[str, list[float]]]:
    """Raw samples of a measurement."""
    return queries.samples(store(), measurement_id, metric)


@st.cache_resource(max_entries=4, show_spinner=False)
def statuses(mark: str, run_ids: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """Cases by status of some runs."""
    return queries.counts_by_status(store(), run_ids)


@st.cache_resource(max_entries=4, show_spinner=False)
def controls(mark: str, run_ids: tuple[str, ...]) -> dict[str, dict[str, list[Value]]]:
    """Frozen control kernels of some runs."""
    return queries.controls(store(), run_ids)


@st.cache_resource(max_entries=4, show_spinner=False)
def troubles(mark: str, run_id: str) -> list[Trouble]:
    """What failed in a run, or lost samples."""
    return screens.troubles(store(), run_id)


@st.cache_resource(max_entries=4, show_spinner=False)
def retries(mark: str, machine: str, runs: int) -> list[RetryCell]:
    """What was tried more than once in the newest runs of a machine."""
    return screens.retries(store(), machine, runs=runs)


def author() -> str:
    """Who triages: the user who logged in where the app asks for that, else the owner of the process."""
    user: Mapping[str, Any] = st.user
    if user.get("is_logged_in"):
        return str(user.get("email") or user.get("name") or "unknown")
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def next_states(state: str) -> list[str]:
    """States that people may give an incident that is in ``state``."""
    ours = {TriageState.NEW, TriageState.DISMISSED, TriageState.SUSPECT}
    order = [s for s in TriageState if s not in ours]
    return [s.value for s in order if s in TRANSITIONS[TriageState(state)]]


def decide(incident_id: str, state: str | None, reason: str, owner: str | None) -> None:
    """Move an incident, or name its owner, or both. InputError for what is not allowed."""
    with open_store(url(), create=False, lock_timeout_s=_PATIENCE_S) as writable:
        if state is not None:
            triage(writable, incident_id, TriageState(state), reason, author())
        if owner is not None:
            set_owner(writable, incident_id, owner)


@st.cache_resource(max_entries=8, show_spinner=False)
def cases(mark: str, keys: tuple[str, ...]) -> dict[str, CaseRow]:
    """Cases by key."""
    return queries.cases(store(), keys)


@st.cache_resource(max_entries=8, show_spinner=False)
def incidents_of(mark: str, keys: tuple[str, ...]) -> dict[str, list[tuple[str, str]]]:
    """Incidents that hold cases."""
    return screens.incidents_of_cases(store(), keys)
