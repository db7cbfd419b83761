"""Cached queries. The key holds the store's newest run, so that a new ingest is seen at once."""

from __future__ import annotations

import os
from typing import Any

import streamlit as st

from db.engine import Store, open_store
from db.queries import IncidentDetail, IncidentRow, RunRow, freshness, incident, incidents, measurements_of_run, runs


@st.cache_resource
def _store(url: str | None) -> Store:
    return open_store(url, create=False, read_only=True)


def store() -> Store:
    """The store that the dashboard was opened on."""
    return _store(os.environ.get("ATTNWATCH_DB"))


def revision() -> str:
    """Changes with every run and every triage."""
    newest = incidents(store(), limit=1)
    fresh = freshness(store())
    return f"{fresh.last_started_run}:{fresh.last_finished_at}:{newest[0].updated_at if newest else 0}"


@st.cache_data(max_entries=8, show_spinner=False)
def list_incidents(revision: str) -> list[IncidentRow]:
    """All incidents, the one updated last first."""
    return incidents(store(), limit=1000)


@st.cache_data(max_entries=64, show_spinner=False)
def one_incident(revision: str, incident_id: str) -> IncidentDetail | None:
    """An incident with its regressions and triage."""
    return incident(store(), incident_id)


@st.cache_data(max_entries=8, show_spinner=False)
def list_runs(revision: str) -> list[RunRow]:
    """The newest runs."""
    return runs(store(), limit=200)


@st.cache_data(max_entries=16, show_spinner=False)
def run_rows(revision: str, run_id: str) -> list[dict[str, Any]]:
    """Measurements of a run as flat rows; latency in milliseconds, memory in MiB."""
    return [
        {
            **m.case.columns,
            "status": m.status,
            "latency ms": _scaled(m.metrics.get("latency_s"), 1e3),
            "peak MiB": _scaled(m.metrics.get("peak_memory_bytes"), 1 / 2**20),
            "TFLOP/s": _scaled(m.metrics.get("flops_per_s"), 1e-12),
            "detail": m.detail,
        }
        for m in measurements_of_run(store(), run_id)
    ]


def _scaled(value: Any, factor: float) -> float | None:
    return None if value is None else value.value * factor
