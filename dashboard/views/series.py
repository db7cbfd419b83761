"""Every series at a glance, and any of them close up."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard import data, shell
from dashboard.charts import lines
from dashboard.labels import short_names
from dashboard.series_rows import rows_of, upgrades
from dashboard.text import count, csv_text, label, number, plain, scale, title, when
from db.queries import Point
from db.screens import AtlasPage
from harness.model import METRICS, PRIMARY

_PAGE = 48
_MOST = 8
_SPARK = 60
_POINT = ("name", "run", "full", "status", "value", "low", "high")


@shell.framed
def page(mark: str) -> None:
    """Atlas above, chosen series below."""
    st.title("Series")
    if shell.empty(mark):
        return
    held = data.holdings(mark)
    top = st.columns([1.5, 1.2, 1, 1, 1, 1.6])
    with top[0]:
        machine = shell.machine(mark)
    with top[1]:
        metrics = [m for m in METRICS if m in held.metrics and m != "status" and not m.startswith("control_")]
        metrics += [m for m in held.metrics if m not in METRICS]
        metric = shell.option("Metric", "metric", metrics, default=PRIMARY)
    filters: dict[str, Any] = {}
    for column, name, choices in (
        (top[2], "operation", held.operations), (top[3], "benchmark", held.benchmarks),
        (top[4], "backend", held.backends),
    ):  # fmt: skip
        with column:
            chosen = shell.option(name.capitalize(), name, ["all", *choices])
            filters[name] = None if chosen == "all" else chosen
    with top[5]:
        filters["words"] = shell.words("Text", "q", placeholder="kv_len=129 causal=True")
    if machine is None or metric is None:
        st.info("No run has measured anything yet.")
        return
    only, pages = st.columns([3, 1], vertical_alignment="bottom")
    with only:
        changed = st.toggle(
            "Changed only", key="changed", bind="query-params", help="moved by more than 5 %, or in an open incident"
        )
    number_ = st.session_state.get("page", 1)
    filters |= {"changed_by": 0.05 if changed else None, "limit": _PAGE, "offset": (number_ - 1) * _PAGE}
    found = data.atlas(mark, machine, metric, tuple(filters.items()))
    if not found.rows and number_ > 1:
        found = data.atlas(mark, machine, metric, tuple((filters | {"offset": 0}).items()))
    if not found.rows:
        st.info("No series matches. Widen the filters, or choose another metric.")
        return
    with pages:
        if found.total > _PAGE:
            st.number_input(f"Page, of {-(-found.total // _PAGE)}", 1, -(-found.total // _PAGE), key="page")
    st.caption(f"{count(found.total, 'series', 'series')}, moved farthest first. Choose rows to see them close up.")
    chosen = _atlas(mark, machine, metric, found)
    if chosen:
        _close_up(mark, machine, metric, chosen)


def _atlas(mark: str, machine: str, metric: str, found: AtlasPage) -> list[str]:
    unit, factor = scale(metric)
    keys = tuple(r.case.key for r in found.rows)
    points = data.series(mark, metric, machine, keys)
    names, same = short_names(r.case for r in found.rows)
    rows = [
        {
            "over runs": [p.value * factor for p in points.get(r.case.key, []) if p.value is not None][-_SPARK:],
            "backend": r.case.backend, "benchmark": r.case.benchmark, "case": names[r.case.key],
            "newest": r.newest * factor, "change": None if r.change is None else r.change * 100,
            "incident": "open" if r.in_incident else "",
        }
        for r in found.rows
    ]  # fmt: skip
    if same:
        st.caption(f"All of them: {plain(same)}")
    asked = [k for k in (st.query_params.get("series") or "").split(",") if k][:_MOST]
    default = [i for i, k in enumerate(keys) if k in asked] or [0]
    picked = st.dataframe(
        rows, hide_index=True, width="stretch", height=420, row_height=38, on_select="rerun",
        selection_mode="multi-row", key=f"atlas-{metric}-{machine}-{hash(keys)}",
        selection_default={"selection": {"rows": default}},
        column_config={
            "over runs": st.column_config.LineChartColumn(f"{title(metric)} over runs", width="medium"),
            "case": st.column_config.TextColumn("case", width="large"),
            "newest": st.column_config.NumberColumn(f"newest ({unit})" if unit else "newest", format="%.4g"),
            "change": st.column_config.NumberColumn(
                "moved", format="%+.1f %%", help="newest value against the mean of those before it, newest 12 runs"
            ),
            "incident": st.column_config.TextColumn("incident", width="small"),
        },
    )  # fmt: skip
    chosen = [keys[i] for i in picked["selection"]["rows"] if i < len(keys)]
    chosen = list(dict.fromkeys([*chosen, *(k for k in asked if k not in keys)]))[:_MOST]
    st.query_params["series"] = ",".join(chosen)
    return chosen


def _close_up(mark: str, machine: str, metric: str, keys: list[str]) -> None:
    others = [m for m in data.machines(mark) if m.runs and m.fingerprint != machine]
    cells = st.columns([1, 1.4, 3], vertical_alignment="center")
    with cells[0]:
        log = st.toggle("Logarithmic", key="log", bind="query-params")
    with cells[1]:
        relative = st.toggle("Relative to its median", key="relative", bind="query-params")
    with cells[2]:
        beside = (
            st.multiselect("Other machines", [m.fingerprint for m in others], format_func=_names(others))
            if others
            else []
        )
    cases = data.cases(mark, tuple(keys))
    names, same = short_names(cases.values())
    points: dict[str, list[Point]] = data.series(mark, metric, machine, tuple(keys))
    rows = rows_of({k: p for k, p in points.items() if k in cases}, cases, metric, names, relative=relative)
    for other in beside:
        more = data.series(mark, metric, other, tuple(keys))
        rows += rows_of(more, cases, metric, names, relative=relative, suffix=f" on {_names(others)(other)}")
    if not rows:
        st.info("The chosen series have no points on this machine.")
        return
    axis = f"{title(metric).split(' (')[0]} / median" if relative else title(metric)
    marks = upgrades(data.steps(mark, machine))
    shell.series(rows, axis, f"{metric} of the chosen series over runs", "span", log=log, marks=marks)
    if same and len(keys) > 1:
        st.caption(f"All of them: {plain(same)}")
    st.caption("Bands are 95 % intervals; dotted lines are upgrades and changes of the ruler; ✕ is a run that failed.")
    incidents = data.incidents_of(mark, tuple(keys))
    for key in keys:
        for incident, state in incidents.get(key, [])[:3]:
            of = plain(f"{cases[key].backend} {names[key]}")
            st.page_link(
                shell.page_of("incident"), label=f"{label(state)} incident {plain(incident)}: {of}",
                query_params={"incident": incident}, icon=":material/notifications:",
            )  # fmt: skip
    _samples(mark, metric, {k: points.get(k, []) for k in keys}, {k: f"{cases[k].backend} {names[k]}" for k in keys})
    st.download_button(
        "Points as CSV",
        lambda: csv_text([{k: r[k] for k in _POINT} for r in rows]),
        file_name=f"{metric}.csv",
        mime="text/csv",
        icon=":material/download:",
    )


def _names(machines: list[Any]) -> Any:
    names = {m.fingerprint: f"{m.device_model} · {m.fingerprint[:6]}" for m in machines}
    return lambda f: names.get(f, f)


def _samples(mark: str, metric: str, points: dict[str, list[Point]], names: dict[str, str]) -> None:
    with st.expander("Raw samples behind one point"):
        left, right = st.columns(2)
        with left:
            keys = [k for k in points if any(p.value is not None for p in points[k])]
            if not keys:
                st.caption("No point of these series has a value.")
                return
            key = st.selectbox("Series", keys, format_func=names.__getitem__, key="of")
        known = [p for p in points[key] if p.value is not None][::-1]
        with right:
            at = st.selectbox(
                "Run", range(len(known)), key="run-of",
                format_func=lambda i: f"{when(known[i].started_at)}  {number(known[i].value, metric)}",
            )  # fmt: skip
        found = data.samples(mark, known[at].measurement_id, metric)
        factor = scale(metric)[1]
        kinds = (("warm-up", found["warmup"].get(metric, [])), ("kept", found["samples"].get(metric, [])))
        rows = [{"value": v * factor, "kind": kind} for kind, values in kinds for v in values]
        if not rows:
            st.caption("No samples are stored for this metric: it is no estimate, or it came from another tool.")
            return
        shell.chart(lines.samples([r | {"i": i} for i, r in enumerate(rows)], title(metric)), "Raw samples of one run")
