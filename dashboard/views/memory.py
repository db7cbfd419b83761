"""What memory goes to, and how it grows."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import streamlit as st

from dashboard import data, shell
from dashboard.charts import points
from dashboard.labels import short_names
from dashboard.text import plain, title
from db.screens import CaseValues

_METRICS = ("peak_memory_bytes", "output_bytes", "workspace_bytes", "input_bytes")
_PARTS = {"results": "output_bytes", "workspace": "workspace_bytes"}
_COLOURS = ["#0077BB", "#EE7733"]
_BARS = 24
_MIB = 1 / 2**20


@shell.framed
def page(mark: str) -> None:
    """Shares, growth, and what is missing."""
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
    if here:
        st.subheader("How the peak grows")
        _growth(here)
        st.subheader("What it goes to")
        _shares(here)
    else:
        st.info("This run recorded no memory.")
    shell.missing({
        "Model against measured": "needs an analytic model of each backend's memory",
        "The knee": "needs sweeps up to where memory runs out",
        "Fragmentation over time, tracer timeline": "need the memory tracer, which runs do not switch on yet",
    })  # fmt: skip


def _elements(row: CaseValues) -> float:
    p = row.case.params
    try:
        return float(p["batch"]) * float(p["heads_q"]) * float(p["q_len"]) * float(p["kv_len"])
    except (KeyError, TypeError, ValueError):
        return math.nan


def _growth(rows: list[CaseValues]) -> None:
    made = [
        {
            "backend": r.case.backend, "x": _elements(r), "y": r.values["peak_memory_bytes"].value * _MIB,
            "label": r.case.label,
        }
        for r in rows
        if math.isfinite(_elements(r))
    ]  # fmt: skip
    if not made:
        st.caption("Sizes of these cases are not known.")
        return
    shell.chart(
        points.growth(made, "scores: batch x heads x q_len x kv_len", title("peak_memory_bytes")),
        "Peak memory against the number of scores",
    )
    by: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for m in made:
        if float(str(m["y"])) > 0:
            by[str(m["backend"])].append((math.log(float(str(m["x"]))), math.log(float(str(m["y"])))))
    table = []
    for backend, pairs in sorted(by.items()):
        if len({x for x, _ in pairs}) >= 3:
            xs, ys = (np.array(side) for side in zip(*pairs, strict=True))
            slope = round(float(np.polyfit(xs, ys, 1)[0]), 2)
            table.append({"backend": backend, "grows as (scores) to the power of": slope, "cases": len(pairs)})
    if table:
        st.dataframe(table, hide_index=True, width="content")
        st.caption("1: in step with the number of scores, as a stored matrix of them would; less: slower than that.")


def _shares(rows: list[CaseValues]) -> None:
    by: dict[str, list[CaseValues]] = defaultdict(list)
    for r in sorted(rows, key=lambda r: -r.values["peak_memory_bytes"].value):
        by[r.case.backend].append(r)
    each = max(_BARS // len(by), 1)
    largest = [r for backend in sorted(by) for r in by[backend][:each]]
    names, same = short_names(r.case for r in largest)
    made = [
        {"name": f"{r.case.backend} {names[r.case.key]}", "part": part, "value": r.values[metric].value * _MIB}
        for r in largest
        for part, metric in _PARTS.items()
        if metric in r.values
    ]
    shell.chart(points.shares(made, "peak above the inputs (MiB)", list(_PARTS), _COLOURS), "What the peak is made of")
    if same:
        st.caption(f"All of them: {plain(same)}")
    if len(rows) > len(largest):
        st.caption(f"The largest of each backend, {len(largest)} of {len(rows):,}.")
