"""One incident: where it is, since when, how sure, how to see it oneself, and what to do about it."""

from __future__ import annotations

import statistics
import time
from typing import Any

import streamlit as st

from dashboard import data, facts, shell, trail, triage
from dashboard.charts import heat
from dashboard.labels import short_names
from dashboard.series_rows import flags, rows_of, upgrades
from dashboard.text import age, count, csv_text, effect, plain, short, title, when
from db.queries import IncidentDetail, RunRow
from db.screens import Pair
from harness.model.expr import Expression, compile_expr

_CHOICES = 200
_ROWS = 500


@shell.framed
def page(mark: str) -> None:
    """The incident that the address names, else the most urgent one."""
    if shell.empty(mark):
        return
    wanted = _choose(mark)
    detail = data.incident(mark, wanted) if wanted else None
    if detail is None:
        st.title("Incident")
        if wanted:
            st.warning(f"The store holds no incident {plain(wanted)}.")
        else:
            st.success("No incidents.", icon=":material/check_circle:")
        return
    base_id, head_id = facts.runs_of(detail)
    base, head = (data.run(mark, r) if r else None for r in (base_id, head_id))
    trigger = facts.trigger_of(detail)
    metric = facts.metric_of(detail)
    measured = "latency_s" if metric == "status" else metric
    benchmarks = tuple(sorted({r.case.benchmark for r in detail.regressions}))
    pairs = data.pairs(mark, measured, base_id or head_id, head_id, benchmarks) if head_id else []
    _head(detail, base, head)
    tabs = st.tabs(["Map", "Series", "Combinations", "What changed", "Evidence", "Trail", "Triage"])
    with tabs[0]:
        _map(detail, pairs, trigger, measured)
    with tabs[1]:
        _series(mark, detail, measured)
    with tabs[2]:
        _combinations(detail, base, head)
    with tabs[3]:
        _changes(mark, detail, base, head)
    with tabs[4]:
        _evidence(mark, detail, pairs, trigger, base, head)
    with tabs[5]:
        _trail(mark, detail, head)
    with tabs[6]:
        left, right = st.columns([2, 3], gap="large")
        with left:
            triage.form(detail.incident)
        with right:
            triage.history(detail.events)


def _choose(mark: str) -> str | None:
    known = {r.id: r.title for r in data.incident_page(mark, None, None, None, "", _CHOICES, 0).rows}
    asked = st.query_params.get("incident")
    if asked and asked not in known:
        known = {asked: "", **known}
    if not known:
        return asked
    ids = list(known)
    chosen: str = st.selectbox(
        "Incident", ids, index=ids.index(asked) if asked else 0, key=f"choose-{asked}",
        format_func=lambda i: f"{i}  {known[i]}".strip(), label_visibility="collapsed",
    )  # fmt: skip
    if chosen != asked:
        st.query_params["incident"] = chosen
    return chosen


def _head(detail: IncidentDetail, base: RunRow | None, head: RunRow | None) -> None:
    i = detail.incident
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        triage.badge(i)
        st.markdown(f"### {plain(i.title)}")
    if i.trigger_text:
        st.code(i.trigger_text, language="python", wrap_lines=True)
    elif trail.causes(i.evidence):
        st.caption("No trigger was looked for: all of it came with a new compiler.")
    else:
        st.caption("No trigger: nothing separates the regressed combinations from the others better than chance.")
    for cause in trail.causes(i.evidence):
        st.markdown(f":material/build: **Came with a new compiler:** {plain(cause)}")
    for growth in trail.growths(i.evidence):
        st.markdown(f":material/trending_up: **Grows faster:** {plain(growth)}")
    cells = st.columns(5)
    told = effect(i.effect, i.effect_low, i.effect_high).partition(" (")
    cells[0].metric("Effect", told[0], help="median over the combinations, head over base, less one")
    cells[0].caption(f"95 % interval {told[2].rstrip(')')}" if told[2] else "")
    cells[1].metric("First bad revision", short(i.first_bad_revision, 9) or "unknown")
    cells[1].caption(f"last good {plain(short(i.last_good_revision) or 'unknown')}")
    cells[2].metric("Combinations", f"{len(detail.regressions):,}")
    confirmed = sum(r.state == "confirmed" for r in detail.regressions)
    cells[2].caption(f"{confirmed:,} confirmed by measuring again")
    cells[3].metric("Age", age(i.opened_at, time.time()))
    cells[3].caption(f"opened {when(i.opened_at)} UTC")
    cells[4].metric("Owner", i.owner or "nobody yet")
    cells[4].caption(plain(head.device_model) if head else "")
    if head is not None:
        st.code(facts.reproduce(_where(detail), head.suite, base, head), language="sh", wrap_lines=True)
        st.caption("Reproduce: measures the worst combination again. Other combinations are under *Combinations*.")
    planted = head.options.get("planted") if head else None
    if planted:
        st.info(
            f"Planted in this demonstration that night: {plain(planted)}. "
            "Its commits do not exist, so the command is an example.",
            icon=":material/science:",
        )


def _where(detail: IncidentDetail) -> str:
    worst = facts.worst(detail.regressions)
    return facts.where_of(worst.case) if worst else detail.incident.trigger_text or "True"


def _map(detail: IncidentDetail, pairs: list[Pair], trigger: Expression | None, metric: str) -> None:
    if not pairs:
        st.info("The runs of this incident are no longer in the store, so there is nothing to map.")
        return
    known = [p.case for p in pairs]
    first = facts.axes(known, trigger)
    cells = st.columns([1, 1, 1, 2])
    with cells[0]:
        x = shell.option("Across", "x", first.choices, default=first.x)
    with cells[1]:
        y = shell.option("Down", "y", first.choices, default=first.y)
    with cells[2]:
        facet = shell.option("One map for each", "facet", ["none", *first.choices], default=first.facet or "none")
    with cells[3]:
        where = shell.words(
            "Only where", "where", placeholder="head_dim == 64 and causal",
            help="an expression over the parameters, as --where takes it",
        )  # fmt: skip
    shown = [p for p in pairs if compile_expr(where, "Only where")(p.case.columns)] if where.strip() else pairs
    if not shown:
        st.info("No combination satisfies this.")
        return
    layout = facts.axes([p.case for p in shown], trigger, x, y, facet)
    cells_ = facts.cells(shown, detail.regressions, trigger, layout)
    shell.chart(
        heat.ratio_map(cells_, layout.x, layout.y, layout.facet, what=f"{title(metric).split(' (')[0]}, head / base"),
        f"Map of {metric} head over base across {layout.x} and {layout.y}",
    )
    rest = f"A cell shows the worst over {', '.join(layout.over)}. " if layout.over else ""
    inside = "inside the trigger" if trigger is not None else "regressed (there is no trigger)"
    st.caption(
        f"Numbers are per cent of change. **Outlined**: {inside}. **╱ ╱**: not tested. **Faded**: looks slower, "
        f"not confirmed. **✕**: fails. {plain(rest)}"
    )


def _series(mark: str, detail: IncidentDetail, metric: str) -> None:
    ordered = sorted(detail.regressions, key=lambda r: -(r.ratio or 0))[:_CHOICES]
    by_key = {r.case.key: r.case for r in ordered}
    if not by_key:
        return
    all_names = short_names(by_key.values())[0]
    left, right = st.columns([4, 1], vertical_alignment="bottom")
    with left:
        keys = st.multiselect(
            "Series", list(by_key), default=list(by_key)[:1], max_selections=8,
            format_func=lambda k: f"{by_key[k].backend} {all_names[k]}",
        )  # fmt: skip
    with right:
        log = st.toggle("Logarithmic", key="log", bind="query-params")
    if not keys:
        return
    machine = detail.incident.machine
    points = data.series(mark, metric, machine, tuple(keys))
    names, same = short_names(by_key[k] for k in keys)
    made = rows_of(points, by_key, metric, names)
    good, bad = flags(made, detail.incident.last_good_revision, detail.incident.first_bad_revision)
    marks = upgrades(data.steps(mark, machine))
    shell.series(
        made, title(metric), f"{metric} of the chosen series over runs", "span", log=log, bad_from=bad,
        good_until=good, marks=marks,
    )  # fmt: skip
    if same and len(keys) > 1:
        st.caption(f"All of them: {plain(same)}")
    st.caption("Bands are 95 % intervals; dotted lines are upgrades of the environment; ✕ is a run that failed.")


def _combinations(detail: IncidentDetail, base: RunRow | None, head: RunRow | None) -> None:
    suite = head.suite if head else "full"
    total = len(detail.regressions)
    left, right = st.columns([5, 1], vertical_alignment="bottom")
    first = 0
    if total > _ROWS:
        with right:
            first = (st.number_input(f"Page, of {-(-total // _ROWS)}", 1, -(-total // _ROWS), key="rows") - 1) * _ROWS
    rows = facts.table(detail.regressions[first : first + _ROWS], suite, base, head)
    with left:
        st.markdown(f"{count(total, 'combination')}, largest effect first. The last column is a command to copy.")
    picked = st.dataframe(
        rows, hide_index=True, width="stretch", on_select="rerun", selection_mode="single-row", key="combinations",
        column_config={
            "effect": st.column_config.TextColumn("effect (95 % interval)", width="medium"),
            "ratio": st.column_config.NumberColumn("ratio", format="%.3f"),
            "p": st.column_config.NumberColumn("p", format="%.1e"),
            "reproduce": st.column_config.TextColumn("reproduce", width="large"),
        },
    )  # fmt: skip
    chosen = picked["selection"]["rows"]
    command = rows[chosen[0] if chosen and chosen[0] < len(rows) else 0]["reproduce"] if rows else ""
    st.code(command, language="sh", wrap_lines=True)
    st.download_button(
        "All combinations as CSV", lambda: csv_text(facts.table(detail.regressions, suite, base, head)),
        file_name=f"incident-{detail.incident.id}.csv", mime="text/csv", icon=":material/download:",
    )  # fmt: skip
    if detail.incident.trigger_text and head is not None:
        st.caption("All combinations inside the trigger:")
        whole = facts.reproduce(detail.incident.trigger_text, suite, base, head)
        st.code(whole, language="sh", wrap_lines=True)


def _changes(mark: str, detail: IncidentDetail, base: RunRow | None, head: RunRow | None) -> None:
    told = [t for t in detail.incident.evidence.get("what_changed", []) if isinstance(t, str)]
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**Between the last good run and the one judged**")
        for sentence in told:
            st.text(sentence)
        environments = [data.environment(mark, r.id) if r else None for r in (base, head)]
        rows = facts.difference(*environments)
        if rows:
            st.dataframe(rows, hide_index=True, width="stretch")
        else:
            st.caption("The environments are the same." if all(environments) else "One of the two runs is not stored.")
    with right:
        st.markdown("**Operators or kernels dispatched**, worst combination")
        worst = facts.worst(detail.regressions)
        sides = [data.attempt(mark, r.id, worst.case.key) if r and worst else None for r in (base, head)]
        if any(s is None or not s.operators for s in sides):
            st.caption("The names of what was dispatched are not recorded for both runs.")
            return
        changes = facts.operator_changes(*(s.operators for s in sides if s))
        if changes:
            st.dataframe(changes, hide_index=True, width="stretch")
        else:
            st.caption("The same operators in both runs: the change is inside them.")
        if worst:
            st.caption(f"{plain(worst.case.backend)} {plain(worst.case.label)}")


def _evidence(
    mark: str, detail: IncidentDetail, pairs: list[Pair], trigger: Expression | None, base: RunRow | None,
    head: RunRow | None,
) -> None:  # fmt: skip
    good, bad = facts.evidence(detail, pairs, trigger, _moved(mark, base, head))
    left, right = st.columns(2, gap="large")
    for column, heading, sentences in ((left, "For", good), (right, "Against, or open", bad)):
        with column:
            st.markdown(f"**{heading}**")
            for sentence in sentences:
                st.markdown(f"- {plain(sentence)}")
            if not sentences:
                st.caption("Nothing.")
    others = [a for a in detail.incident.evidence.get("alternatives", []) if isinstance(a, str)]
    if others:
        st.markdown("**Predicates that these combinations cannot tell from the trigger**")
        st.code("\n".join(others), language="python", wrap_lines=True)
    seen = [r.smallest_detectable for r in detail.regressions if r.smallest_detectable]
    if seen:
        st.caption(f"Changes under {statistics.median(seen):.1%} could not have been seen (median over combinations).")


def _trail(mark: str, detail: IncidentDetail, head: RunRow | None) -> None:
    """From the case that was measured to those who were told, and the command that follows it."""
    known = data.runs(mark, detail.incident.machine)
    near = [head, *known] if head is not None else known
    rows = trail.measured(detail, near)
    st.markdown("**Measured**")
    if rows:
        picked = st.dataframe(
            rows, hide_index=True, width="stretch", on_select="rerun", selection_mode="single-row", key="trail",
            column_config={"attempt": st.column_config.NumberColumn(help="2 where the case was tried again")},
        )  # fmt: skip
        chosen = picked["selection"]["rows"]
        trace = rows[chosen[0] if chosen and chosen[0] < len(rows) else 0]["trace"]
        st.code(f"attnwatch follow {trace}", language="sh")
        st.caption("Its attempts, the incidents that hold it, and who decided what. Choose a row for another trace.")
    else:
        st.caption("No trace is recorded with this incident, so there is none to follow.")
    for word, sentence in trail.steps(detail, head):
        st.markdown(f"**{word}** {plain(sentence)}")


def _moved(mark: str, base: RunRow | None, head: RunRow | None) -> dict[str, float]:
    """Head over base of each frozen control kernel that both runs have."""
    if base is None or head is None:
        return {}
    both: dict[str, Any] = data.controls(mark, (base.id, head.id))
    medians = [{k: statistics.median(v.value for v in vs) for k, vs in both[r.id].items()} for r in (base, head)]
    return {k: medians[1][k] / medians[0][k] for k in medians[0] if medians[1].get(k) and medians[0][k]}
