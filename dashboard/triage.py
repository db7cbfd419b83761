"""Deciding about an incident in place, with a reason, and who decided what before."""

from __future__ import annotations

import streamlit as st

from dashboard import data
from dashboard.text import STATE_WORDS, label, plain, when
from db.queries import IncidentRow, TriageRow
from harness.model import AttnwatchError, TriageState

_MEANING = {
    TriageState.CONFIRMED: "It is real and somebody must look at it.",
    TriageState.ACKNOWLEDGED: "Somebody looks after it; it stays open.",
    TriageState.EXPECTED: "It is the price of something; the level after it becomes the new baseline.",
    TriageState.FIXED: "It is gone; when it comes back it is news.",
    TriageState.FALSE_POSITIVE: "Nothing changed; the judge was wrong.",
}


def form(incident: IncidentRow) -> None:
    """The form, or the reason why there is none."""
    if data.read_only():
        st.caption("This dashboard is read-only: triage with `attnwatch triage`, or on one that is not.")
        return
    choices = data.next_states(incident.state)
    with st.form(f"triage-{incident.id}", clear_on_submit=True):
        st.markdown(f"**What is it?** You decide as {plain(data.author())}.")
        state = st.selectbox(
            "New state", ["(keep)", *choices], format_func=label, key=f"state-{incident.id}",
            help="  \n".join(f"**{label(s)}** {_MEANING[TriageState(s)]}" for s in choices),
        )  # fmt: skip
        reason = st.text_area("Reason", placeholder="Kept with the incident, for those who come later", height=80)
        owner = st.text_input("Owner", value=incident.owner, placeholder="Who looks after it")
        if st.form_submit_button("Record", type="primary"):
            _record(incident, None if state == "(keep)" else state, reason, owner)


def _record(incident: IncidentRow, state: str | None, reason: str, owner: str) -> None:
    changed = owner.strip() if owner.strip() != incident.owner else None
    if state is None and changed is None:
        st.warning("Nothing to record: choose a state or name an owner.")
        return
    if state is not None and not reason.strip():
        st.warning("A state needs a reason; one sentence is enough.")
        return
    try:
        data.decide(incident.id, state, reason.strip(), changed)
    except AttnwatchError as error:
        st.error(plain(error))
        return
    st.toast(f"Recorded: {plain(incident.id)} {label(state) if state else 'has an owner'}")
    st.rerun()


def history(events: list[TriageRow]) -> None:
    """Who moved it, when and why."""
    for e in reversed(events):
        before = f"{label(e.from_state)} → " if e.from_state else ""
        st.markdown(f"{when(e.at)} UTC · {before}**{label(e.to_state)}** · {plain(e.author)}: {plain(e.reason)}")


def badge(incident: IncidentRow) -> None:
    """The state as a coloured word with its meaning, and whether the incident was found in shadow."""
    meaning, colour = STATE_WORDS.get(incident.state, ("", "gray"))
    st.badge(label(incident.state), color=colour, help=meaning)  # type: ignore[arg-type]
    if incident.evidence.get("shadow"):
        st.badge("shadow", color="gray", help="Found while the policy only reports: it alerts nobody.")
