"""Runs and what each of them measured."""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

from dashboard import data


def page() -> None:
    """The newest runs, and the measurements of the chosen one."""
    st.title("Runs")
    mark = data.revision()
    found = data.list_runs(mark)
    if not found:
        st.info("The store holds no runs yet. `make nightly` makes the first one.")
        return
    labels = {
        r.id: f"{datetime.fromtimestamp(r.started_at, UTC):%Y-%m-%d %H:%M} {r.suite} {r.revision[:12]}" for r in found
    }
    chosen = st.selectbox("Run", list(labels), format_func=labels.__getitem__)
    rows = data.run_rows(mark, chosen)
    hide = st.toggle("Hide what this device cannot run", value=True)
    st.dataframe([r for r in rows if not (hide and r["status"] == "unsupported")], hide_index=True, width="stretch")
