"""What regressed, since when, how sure, which combinations set it off, and what now."""

from __future__ import annotations

import time
from typing import Any

import streamlit as st

from dashboard import data, shell, triage
from dashboard.alarms import alarms
from dashboard.text import age, count, effect, label, number, plain, short, when
from db.queries import IncidentRow
from db.screens import Coverage
from harness.model import TriageState

OPEN = (TriageState.NEW, TriageState.CONFIRMED, TriageState.SUSPECT, TriageState.ACKNOWLEDGED)
_URGENT = (TriageState.NEW, TriageState.CONFIRMED)
_PAGE = 50
_CARDS = 3


@shell.framed
def page(mark: str) -> None:
    """The first screen of the morning."""
    st.title("Incidents")
    if shell.empty(mark):
        return
    newest = data.coverage(mark)
    held = data.holdings(mark)
    _fresh(newest)
    urgent = data.incident_page(mark, tuple(s.value for s in _URGENT), None, None, "", _CARDS, 0)
    if urgent.total:
        for row in urgent.rows:
            _card(row)
        if urgent.total > len(urgent.rows):
            st.caption(f"{count(urgent.total - len(urgent.rows), 'more', 'more')} in the table below.")
    else:
        _calm(newest, held.incidents)
    if held.incidents:
        _table(mark)


def _fresh(newest: list[Coverage]) -> None:
    now = time.time()
    for sentence in alarms(newest, now):
        st.warning(plain(sentence), icon=":material/schedule:")
    c = newest[0]
    ran = ", ".join(f"{n:,} {label(s)}" for s, n in sorted(c.counts.items(), key=lambda item: -item[1]))
    st.caption(
        f"Newest run: {plain(c.suite)} of revision {plain(short(c.revision))} on {plain(c.device_model)}, "
        f"{age(c.started_at, now)} ago ({ran})."
    )


def _calm(newest: list[Coverage], by_state: dict[str, int]) -> None:
    known = sum(by_state.get(s, 0) for s in OPEN)
    if known:
        st.success(f"Nothing new. {count(known, 'known incident')} still open.", icon=":material/check_circle:")
        return
    compared = sum(c.counts.get("ok", 0) for c in newest[:1])
    st.success(
        f"No incidents. All of the {count(compared, 'measured case')} of the newest run are where they were, "
        "or have nothing to be compared with yet.",
        icon=":material/check_circle:",
    )


def _card(row: IncidentRow) -> None:
    now = time.time()
    with st.container(border=True):
        left, right = st.columns([5, 1.3], vertical_alignment="center")
        with left:
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                triage.badge(row)
                st.markdown(f"**{plain(row.title)}**")
            if row.trigger_text:
                st.code(row.trigger_text, language="python", wrap_lines=True)
            else:
                st.caption("No trigger: nothing separates the regressed combinations from the others.")
            st.markdown(
                f"Effect **{plain(effect(row.effect, row.effect_low, row.effect_high))}**"
                f" · first bad revision **{plain(short(row.first_bad_revision) or 'unknown')}**"
                f" · last good {plain(short(row.last_good_revision) or 'unknown')}"
                f" · {count(row.regressions, 'combination')}{_lost(row)} · {age(row.opened_at, now)} old"
                f" · {'owner ' + plain(row.owner) if row.owner else 'no owner'}"
            )
        with right:
            _link(row.id)


def _lost(row: IncidentRow) -> str:
    """What the incident costs in one pass over the workloads, where that is known."""
    lost = row.evidence.get("lost_s")
    return f" · {plain(number(lost, 'latency_s'))} lost a pass" if isinstance(lost, float) and lost > 0 else ""


def _link(incident_id: str) -> None:
    st.page_link(
        shell.page_of("incident"), label=f"Open {plain(incident_id)}", icon=":material/arrow_forward:",
        query_params={"incident": incident_id},
    )  # fmt: skip


def _table(mark: str) -> None:
    held = data.holdings(mark)
    st.subheader("All incidents")
    states, backend, machine, text = st.columns([3, 1.4, 1.6, 2])
    with states:
        known = [s.value for s in TriageState if held.incidents.get(s.value)]
        wanted = st.pills(
            "State", known, selection_mode="multi", key="state", bind="query-params",
            format_func=lambda s: f"{label(s)} {held.incidents.get(s, 0)}",
            help="None chosen: all of them",
        )  # fmt: skip
    with backend:
        one = shell.option("Backend", "backend", ["all", *held.incident_backends])
    with machine:
        on = dict(held.incident_machines)
        where = shell.option("Machine", "machine", ["all", *on], names=lambda f: on.get(f, f))
    with text:
        words = shell.words("Text", "q", placeholder="title, trigger, revision, owner, id")
    number = st.session_state.get("page", 1)
    filters = (
        tuple(wanted) or None, None if one == "all" else one, None if where == "all" else where, words, _PAGE,
    )  # fmt: skip
    found = data.incident_page(mark, *filters, (number - 1) * _PAGE)
    if not found.rows and number > 1:
        found = data.incident_page(mark, *filters, 0)
    if not found.total:
        st.info("No incident matches these filters.")
        return
    now = time.time()
    picked = st.dataframe(
        [_row(r, now) for r in found.rows], hide_index=True, width="stretch", key="table", on_select="rerun",
        selection_mode="single-row", column_config=_COLUMNS,
    )  # fmt: skip
    if found.total > _PAGE:
        pages = -(-found.total // _PAGE)
        st.number_input(f"Page, of {pages}", 1, pages, key="page", width=160)
    rows = picked["selection"]["rows"]
    if rows and rows[0] < len(found.rows):
        _chosen(mark, found.rows[rows[0]])
    else:
        st.caption("Choose a row to triage it here, or open it for the map, the series and the evidence.")


_COLUMNS: dict[str, Any] = {
    "state": st.column_config.TextColumn("State", width=105),
    "what": st.column_config.TextColumn("What", width=235),
    "trigger": st.column_config.TextColumn("Trigger", width=290),
    "effect": st.column_config.TextColumn("Effect (95 % interval)", width=175, help="head over base, less one"),
    "since": st.column_config.TextColumn("First bad", width=105),
    "age": st.column_config.TextColumn("Age", width=50),
    "owner": st.column_config.TextColumn("Owner", width=65),
    "cases": st.column_config.NumberColumn("Cases", width=55),
    "id": st.column_config.TextColumn("Id", width=80),
}


def _row(r: IncidentRow, now: float) -> dict[str, Any]:
    return {
        "state": label(r.state) + (", shadow" if r.evidence.get("shadow") else ""),
        "what": r.title, "trigger": r.trigger_text or "–",
        "effect": effect(r.effect, r.effect_low, r.effect_high), "since": short(r.first_bad_revision),
        "age": age(r.opened_at, now), "owner": r.owner, "cases": r.regressions, "id": r.id,
    }  # fmt: skip


def _chosen(mark: str, row: IncidentRow) -> None:
    with st.container(border=True):
        facts, decide = st.columns([3, 2], gap="large")
        with facts:
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                triage.badge(row)
                st.markdown(f"**{plain(row.title)}**")
            if row.trigger_text:
                st.code(row.trigger_text, language="python", wrap_lines=True)
            st.markdown(
                f"Effect {plain(effect(row.effect, row.effect_low, row.effect_high))}"
                f" · opened {when(row.opened_at)} UTC"
            )
            _link(row.id)
            detail = data.incident(mark, row.id)
            if detail is not None:
                triage.history(detail.events)
        with decide:
            triage.form(row)
