"""What memory goes to, how it grows, where it runs out, and one call event by event."""

from __future__ import annotations

import math
from collections import defaultdict

import streamlit as st

from dashboard import data, memory_facts, shell
from dashboard.charts import memory as charts
from dashboard.charts import points
from dashboard.labels import short_names
from dashboard.memory_facts import MIB
from dashboard.text import plain, title
from db.screens import CaseValues
from harness.model import InputError, Status
from harness.model.trace import TELEMETRY, decode

_METRICS = (
    "peak_memory_bytes", "output_bytes", "workspace_bytes", "input_bytes", "kv_cache_bytes", "kv_model_bytes",
    "bytes_per_s", *memory_facts.PARTS.values(),
)  # fmt: skip
_COLOURS = {
    "inputs": "#BBBBBB", "kv_cache input": "#33BBEE", "kv_cache": "#0077BB", "activations": "#009988",
    "gradients": "#CC3311", "optimiser": "#EE3377", "results": "#8C7A1D", "workspace": "#EE7733", "other": "#555555",
}  # fmt: skip
_BARS, _LISTED, _TRACED = 24, 50, 200
_HISTORY = "fragmentation.json"


@shell.framed
def page(mark: str) -> None:
    """Growth, shares, model, what ran out, a trace, fragmentation, and what is missing."""
    st.title("Memory")
    if shell.empty(mark):
        return
    top = st.columns([1.5, 2, 1.2])
    with top[0]:
        machine = shell.machine(mark)
    run = shell.run(mark, top[1], machine)
    with top[2]:
        benchmark = shell.option("Benchmark", "benchmark", list(data.benchmarks(mark, run)) if run else [])
    rows = data.case_values(mark, run, _METRICS, benchmark) if run else []
    here = [r for r in rows if "peak_memory_bytes" in r.values]
    absent: dict[str, str] = {}
    if here:
        st.subheader("How the peak grows")
        _growth(here, absent)
        st.subheader("What it goes to")
        _shares(here)
    else:
        st.info("This run recorded no memory.")
    _model(rows, absent)
    _ran_out(rows)
    _saturation(rows, absent)
    _trace(mark, run, here, absent)
    _fragmentation(absent)
    if absent:
        shell.missing(absent)


def _elements(row: CaseValues) -> float:
    p = row.case.params
    try:
        return float(p["batch"]) * float(p["heads_q"]) * float(p["q_len"]) * float(p["kv_len"])
    except (KeyError, TypeError, ValueError):
        return math.nan


def _growth(rows: list[CaseValues], absent: dict[str, str]) -> None:
    made = [
        {
            "backend": r.case.backend, "x": _elements(r), "y": r.values["peak_memory_bytes"].value * MIB,
            "label": r.case.label,
        }
        for r in rows
        if math.isfinite(_elements(r))
    ]  # fmt: skip
    if made:
        shell.chart(
            points.growth(made, "scores: batch x heads x q_len x kv_len", title("peak_memory_bytes")),
            "Peak memory against the number of scores",
        )
    else:
        st.caption("Sizes of these cases are not known.")
    found = memory_facts.exponent_rows(rows, "peak_memory_bytes")
    if not found:
        absent["Exponents and the knee"] = (
            "need three sizes along one axis, all else alike, as the batch_memory suite has"
        )
        return
    st.caption("The peak as a power of one axis, all else alike; the steepest lines of this run.")
    shell.chart(charts.exponents(found), "Exponents of the peak along the axes of the sweep, with intervals")
    bends = [f for f in found if f["knee"]]
    if bends:
        st.caption("Knees: where the exponent rises along the line.")
        st.dataframe(
            [{"line": f["name"], "knee at": f["knee"], "points": f["points"]} for f in bends],
            hide_index=True, width="stretch",
        )  # fmt: skip
    else:
        st.caption("No knee: one exponent tells each of these lines, or there are fewer than five sizes.")


def _shares(rows: list[CaseValues]) -> None:
    by: dict[str, list[CaseValues]] = defaultdict(list)
    for r in sorted(rows, key=lambda r: -r.values["peak_memory_bytes"].value):
        by[r.case.backend].append(r)
    each = max(_BARS // len(by), 1)
    largest = [r for backend in sorted(by) for r in by[backend][:each]]
    names, same = short_names(r.case for r in largest)
    made = [
        {"name": f"{r.case.backend} {names[r.case.key]}", "part": part, "value": value * MIB}
        for r in largest
        for part, value in memory_facts.parts_of(r).items()
        if value
    ]
    used = [part for part in _COLOURS if any(m["part"] == part for m in made)]
    shell.chart(
        points.shares(made, "inputs and the peak above them (MiB)", used, [_COLOURS[p] for p in used]),
        "What inputs and peak are made of",
    )
    if same:
        st.caption(f"All of them: {plain(same)}")
    if len(rows) > len(largest):
        st.caption(f"The largest of each backend, {len(largest)} of {len(rows):,}.")


def _model(rows: list[CaseValues], absent: dict[str, str]) -> None:
    made = memory_facts.gaps(rows)
    if not made:
        absent["Model against measured"] = "needs cases with keys and values among their inputs"
        return
    st.subheader("Model against measured")
    shell.chart(
        charts.against(made, "C x L: bytes that the valid keys and values need (MiB)", "measured (MiB)"),
        "Measured bytes of keys and values against the model",
    )
    off = [m for m in made if m["alarm"]]
    st.caption(
        f"On the line is what the model says. Filled: {len(off)} of {len(made):,} part from it by more than 5 %, which "
        "capacity that nobody filled, pages that are not full and padding all do."
    )


def _ran_out(rows: list[CaseValues]) -> None:
    out = [r for r in rows if r.status == Status.OUT_OF_MEMORY]
    if out:
        st.subheader("Out of memory")
        st.dataframe(
            [{"backend": r.case.backend, "case": r.case.label} for r in out[:_LISTED]], hide_index=True, width="stretch"
        )
        st.caption(f"{len(out):,} cases did not fit. One that used to fit is an incident of its own.")


def _saturation(rows: list[CaseValues], absent: dict[str, str]) -> None:
    """Where bandwidth saturates, for runs that hold the stream benchmark."""
    dots, curves, words = memory_facts.saturation(rows)
    if not words:
        absent["Where bandwidth saturates"] = "needs the stream benchmark, which the weekly suite has"
        return
    st.subheader("Where bandwidth saturates")
    if dots:
        shell.chart(
            charts.saturation(dots, curves, "bytes in flight"),
            "Bandwidth against bytes in flight, with fit and residuals",
        )
    for text in words:
        st.caption(plain(text))


def _trace(mark: str, run: str | None, rows: list[CaseValues], absent: dict[str, str]) -> None:
    """Timeline and address space of one call."""
    if not (run and rows):
        return
    st.subheader("One call, event by event")
    largest = sorted(rows, key=lambda r: -r.values["peak_memory_bytes"].value)[:_TRACED]
    names = {r.case.key: f"{r.case.backend} {r.case.label}" for r in largest}
    chosen: str = shell.option("Case", "case", list(names), names=lambda key: names[key])
    attempt = data.attempt(mark, run, chosen)
    text = None if attempt is None else attempt.telemetry.get(TELEMETRY)
    if not text:
        absent["Tracer timeline of this case"] = "set ATTNWATCH_TRACE_MEM=1 when measuring; it is off by default"
        st.caption("No trace of this case was recorded.")
        return
    try:
        events, dropped = decode(str(text))
    except InputError as error:
        st.error(plain(error))
        return
    shell.chart(
        charts.timeline(memory_facts.levels(events), memory_facts.marks(events)),
        "Bytes held over one call, with copies and the entry of the kernel",
    )
    if cells := memory_facts.address_rows(events):
        shell.chart(
            charts.address_map(cells, "time since the first event (us)", "address, unused gaps left out (B)"),
            "Which part of the address space is held when",
        )
    lost = f"; {dropped:,} older ones were dropped" if dropped else ""
    st.caption(f"{len(events):,} events of one profiled call, outside all timing{lost}. Rules are copies and entries.")


def _fragmentation(absent: dict[str, str]) -> None:
    """A recorded history of the block allocator."""
    text = data.report(_HISTORY)
    if text is None:
        absent["Fragmentation over time"] = (
            "`python -m harness.catalogue.fragmentation` records a model's history among the reports"
        )
        return
    st.subheader("Fragmentation over time")
    try:
        cells, table, blocks = memory_facts.history_rows(text)
    except InputError as error:
        st.error(plain(error))
        return
    shell.chart(
        charts.address_map(cells, "time (steps)", "block", facet=True), "Share of blocks held, by address and time"
    )
    st.dataframe(table, hide_index=True, width="content")
    st.caption(f"A model: a seeded trace of requests over {blocks:,} blocks, not what a server did.")
