"""What regressed, since when, how sure, which combinations."""

from __future__ import annotations

import time

import streamlit as st

from dashboard import data


def page() -> None:
    """Incidents, newest first, and the regressions of the chosen one."""
    st.title("Incidents")
    mark = data.revision()
    found = data.list_incidents(mark)
    newest = data.list_runs(mark)
    if not newest:
        st.info("The store holds no runs yet. `make nightly` makes the first one.")
        return
    age_h = (time.time() - newest[0].started_at) / 3600
    st.caption(f"Newest run: {newest[0].suite} on {newest[0].device_model}, {age_h:.1f} h ago.")
    if age_h > 36:
        st.warning("No run for more than 36 hours: these figures are stale.")
    if not found:
        st.success("No incidents. Every series of the newest run is where it was.")
        return
    rows = [
        {
            "id": i.id, "state": i.state, "what": i.title, "trigger": i.trigger_text or "-",
            "effect": None if i.effect is None else f"{i.effect - 1:+.0%}", "cases": i.regressions,
            "since": (i.first_bad_revision or "")[:12],
        }
        for i in found
    ]  # fmt: skip
    st.dataframe(rows, hide_index=True, width="stretch")
    ids = [i.id for i in found]
    asked = st.query_params.get("incident")
    chosen = st.selectbox("Incident", ids, index=ids.index(asked) if asked in ids else 0)
    st.query_params["incident"] = chosen
    detail = data.one_incident(mark, chosen)
    if detail is None:
        return
    st.subheader(chosen)
    st.text(detail.incident.title)
    st.dataframe(
        [
            {
                **r.case.columns,
                "metric": r.metric,
                "ratio": r.ratio,
                "low": r.ratio_low,
                "high": r.ratio_high,
                "state": r.state,
                "status": "" if r.metric != "status" else f"{r.base_status} -> {r.head_status}",
            }
            for r in detail.regressions
        ],
        hide_index=True,
        width="stretch",
    )
