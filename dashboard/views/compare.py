"""Backends on the same work, and any two runs side by side."""

from __future__ import annotations

from collections import Counter
from typing import Any

import streamlit as st

from dashboard import data, shell
from dashboard.advice import advice, by_work, standings, verdict
from dashboard.charts import points
from dashboard.labels import short_names
from dashboard.text import count, effect, number, plain, scale, short, title, when
from db.queries import RunRow
from db.screens import CaseValues
from harness.model import METRICS

_METRICS = ("latency_s", "tokens_per_s", "flops_per_s", "bytes_per_s", "peak_memory_bytes")
_WORKS = 30
_ROWS = 1000


@shell.framed
def page(mark: str) -> None:
    """Two ways of comparing."""
    st.title("Compare")
    if shell.empty(mark):
        return
    how = st.segmented_control(
        "What", ["backends", "two runs"], default="backends", key="what", bind="query-params",
        label_visibility="collapsed", required=True,
    )  # fmt: skip
    if how == "two runs":
        _runs(mark)
    else:
        _backends(mark)


def name_of(run: RunRow) -> str:
    """A run in a list."""
    return f"{when(run.started_at)}  {run.suite}  {short(run.revision)}"


def _backends(mark: str) -> None:
    cells = st.columns([1.5, 2, 1.2, 1.2])
    with cells[0]:
        machine = shell.machine(mark)
    run = shell.run(mark, cells[1], machine)
    if run is None:
        st.info("No run on this machine.")
        return
    with cells[2]:
        benchmark = shell.option("Scenario", "benchmark", list(data.benchmarks(mark, run)))
    here = data.case_values(mark, run, _METRICS, benchmark)
    with cells[3]:
        metric = shell.option("Metric", "metric", [m for m in _METRICS if any(m in r.values for r in here)])
    found = standings(here)
    if metric is None or not found:
        st.info("No two backends have numbers for the same work in this run.")
        return
    with st.container(border=True):
        st.markdown(f"**Advice for {plain(benchmark)}**")
        for sentence in advice(found):
            st.markdown(f"- {plain(sentence)}")
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("Time and memory")
        shell.chart(
            points.front(
                [
                    {
                        "backend": s.backend, "x": s.slowdown, "y": s.memory or 1.0, "front": s.front,
                        "label": f"{s.slowdown:.2f} x best time, {s.memory or 1.0:.2f} x least memory, "
                        f"{count(s.works, 'work')}",
                    }
                    for s in found
                ],
                "time / best (geometric mean)", "peak memory / least (geometric mean)",
            ),
            "Pareto front of time and memory",
        )  # fmt: skip
        st.caption("Filled: on the front, nobody is better in both. Less is better on both axes.")
    with right:
        st.subheader("Speed against intensity")
        _intensity(here)
    st.subheader(f"{title(metric).capitalize()} by work")
    _by_work(here, metric)


def _by_work(rows: list[CaseValues], metric: str) -> None:
    factor = scale(metric)[1]
    works = by_work(rows, metric)
    names, same = short_names(r.case for sides in works.values() for r in sides.values())
    made = [
        {
            "work": names[row.case.key], "backend": b, "value": v.value * factor,
            "low": (v.value if v.low is None else v.low) * factor,
            "high": (v.value if v.high is None else v.high) * factor,
            "shown": number(v.value, metric),
        }
        for sides in list(works.values())[:_WORKS]
        for b, row in sides.items()
        for v in [row.values[metric]]
    ]  # fmt: skip
    shell.chart(points.intervals(made, title(metric)), f"{metric} by work and backend")
    if same:
        st.caption(f"All of them: {plain(same)}")
    if len(works) > _WORKS:
        st.caption(f"The first {_WORKS} of {len(works):,} works; the table has all of them.")
    table = [
        {"work": work, **{b: row.values[metric].value * factor for b, row in sides.items()}}
        for work, sides in works.items()
    ]
    with st.expander(f"All {count(len(table), 'work')} in {scale(metric)[0] or 'numbers'}"):
        st.dataframe(table, hide_index=True, width="stretch")


def _intensity(rows: list[CaseValues]) -> None:
    made = [
        {
            "backend": r.case.backend, "x": f.value / b.value, "y": f.value * 1e-12, "label": r.case.label,
        }
        for r in rows
        if (f := r.values.get("flops_per_s")) and (b := r.values.get("bytes_per_s")) and b.value > 0
    ]  # fmt: skip
    if not made:
        st.caption("This run recorded no FLOP/s.")
        return
    shell.chart(points.growth(made, "intensity (FLOP/byte)", "speed (TFLOP/s)"), "Speed against arithmetic intensity")
    st.caption("The ceilings of a roofline (peak FLOP/s and bandwidth of the device) are not recorded yet.")


def _runs(mark: str) -> None:
    known = {r.id: r for r in data.runs(mark)}
    ids = list(known)

    def name(run_id: str) -> str:
        return f"{name_of(known[run_id])}  {known[run_id].device_model}"

    cells = st.columns([2, 2, 1.2, 1.2])
    with cells[0]:
        base = shell.option("Base", "base", ids, default=ids[min(1, len(ids) - 1)], names=name)
    with cells[1]:
        head = shell.option("Head", "head", ids, default=ids[0], names=name)
    held = data.holdings(mark)
    with cells[2]:
        metrics = [m for m in METRICS if m in held.metrics and m != "status" and not m.startswith("control_")]
        metric = shell.option("Metric", "metric", metrics)
    with cells[3]:
        benchmark = shell.option("Scenario", "benchmark", ["all", *held.benchmarks])
    if metric is None or base == head:
        st.info("Choose two different runs.")
        return
    found = data.pairs(mark, metric, base, head, None if benchmark == "all" else (benchmark,))
    better = METRICS[metric].better if metric in METRICS else "none"
    judged = [(p, verdict(p, better)) for p in found]
    tally = Counter(v for _, v in judged)
    for cell, word in zip(st.columns(5), ("worse", "better", "within noise", "same", "only in one run"), strict=True):
        cell.metric(word, f"{tally[word]:,}")
    st.caption("From single runs that were not interleaved: a hint, no verdict. `attnwatch compare` interleaves both.")
    names, same = short_names(p.case for p in found)
    moved = sorted(judged, key=lambda item: -abs((item[0].ratio or 1) - 1))
    rows: list[dict[str, Any]] = [
        {
            "backend": p.case.backend, "benchmark": p.case.benchmark, "case": names[p.case.key],
            "base": number(p.base.value if p.base else None, metric),
            "head": number(p.head.value if p.head else None, metric),
            "change": effect(p.ratio), "verdict": v, "base status": p.base_status, "head status": p.head_status,
        }
        for p, v in moved[:_ROWS]
    ]  # fmt: skip
    ratios = [
        {"backend": p.case.backend, "ratio": p.ratio, "verdict": v, "label": names[p.case.key]}
        for p, v in moved[:_ROWS]
        if p.ratio
    ]
    if ratios:
        shell.chart(points.ratios(ratios, f"{title(metric).split(' (')[0]}, head / base"), "Ratios of head over base")
    st.dataframe(rows, hide_index=True, width="stretch")
    if same:
        st.caption(f"All of them: {plain(same)}")
    if len(judged) > _ROWS:
        st.caption(f"The {_ROWS:,} that moved farthest of {len(judged):,}.")
    _environments(mark, base, head)


def _environments(mark: str, base: str, head: str) -> None:
    from dashboard.facts import difference

    rows = difference(data.environment(mark, base), data.environment(mark, head))
    with st.expander(f"{count(len(rows), 'difference')} of the environments"):
        if rows:
            st.dataframe(
                [{"what": r["what"], "base": r["last good"], "head": r["first bad"]} for r in rows], hide_index=True
            )
        else:
            st.caption("Same kernels, packages, driver, variables and threads.")
