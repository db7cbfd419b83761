"""A metric over two parameters, and what one more costs at the boundaries."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard import data, facts, shell
from dashboard.charts import heat, points
from dashboard.sized import neighbours, sized, spread
from dashboard.text import number, plain, scale, title
from db.screens import CaseValues
from harness.model.expr import compile_expr

_METRICS = ("latency_s", "flops_per_s", "tokens_per_s", "bytes_per_s", "peak_memory_bytes", "workspace_bytes")


@shell.framed
def page(mark: str) -> None:
    """Surface above, teeth below."""
    st.title("Sweep")
    if shell.empty(mark):
        return
    top = st.columns([1.5, 2, 1.2, 1.2])
    with top[0]:
        machine = shell.machine(mark)
    run = shell.run(mark, top[1], machine)
    if run is None:
        st.info("No run on this machine.")
        return
    with top[2]:
        benchmark = shell.option("Benchmark", "benchmark", list(data.benchmarks(mark, run)))
    rows = data.case_values(mark, run, _METRICS, benchmark)
    with top[3]:
        metric = shell.option("Metric", "metric", [m for m in _METRICS if any(m in r.values for r in rows)])
    here = [r for r in rows if metric in r.values]
    if not here:
        st.info("No case of this run has a number to show.")
        return
    table = [sized(r.case.columns) for r in here]
    first = spread(table)
    cells = st.columns([1, 1, 1, 2])
    with cells[0]:
        x = shell.option("Across", "x", first.choices, default=first.x)
    with cells[1]:
        y = shell.option("Down", "y", first.choices, default=first.y)
    with cells[2]:
        facet = shell.option("One map for each", "facet", ["none", *first.choices], default=first.facet or "none")
    with cells[3]:
        where = shell.words("Only where", "where", placeholder="head_dim == 64 and causal")
    keep = compile_expr(where, "Only where") if where.strip() else None
    kept = [(r, c) for r, c in zip(here, table, strict=True) if keep is None or keep(r.case.columns)]
    if not kept:
        st.info("No combination satisfies this.")
        return
    layout = spread([c for _, c in kept], x, y, facet)
    _surface(kept, layout, metric)
    _teeth(kept, layout, metric)


def _surface(kept: list[tuple[CaseValues, dict[str, Any]]], layout: facts.Axes, metric: str) -> None:
    factor = scale(metric)[1]
    at: dict[tuple[Any, Any, Any], list[float]] = {}
    for row, columns in kept:
        place = (_text(columns.get(layout.x)), _text(columns.get(layout.y)), _text(columns.get(layout.facet or "")))
        at.setdefault(place, []).append(row.values[metric].value)
    cells = []
    for (cx, cy, cf), values in at.items():
        middle = sorted(values)[len(values) // 2]
        cells.append({
            "x": cx, "y": cy, "facet": cf, "value": middle * factor, "label": number(middle, metric),
            "cases": len(values),
        })  # fmt: skip
    shell.chart(
        heat.surface(cells, layout.x, layout.y, title(metric), layout.facet),
        f"{metric} across {layout.x} and {layout.y}",
    )
    over = f" Each cell is the median over {', '.join(layout.over)}." if layout.over else ""
    st.caption(f"Colours are logarithmic.{plain(over)} Combinations that were not measured are left blank.")


def _teeth(kept: list[tuple[CaseValues, dict[str, Any]]], layout: facts.Axes, metric: str) -> None:
    st.subheader("What one more costs")
    parameters = [n for n in layout.choices if neighbours([c for _, c in kept], n)]
    if not parameters:
        st.caption(
            "No two combinations differ by one in a single parameter. "
            "`attnwatch measure --suite boundary` measures lengths on both sides of each block."
        )
        return
    n = shell.option("Parameter", "teeth", parameters)
    rows = [
        {
            "n": value, "ratio": b.values[metric].value / a.values[metric].value, "backend": a.case.backend,
            "label": a.case.label, "shown": f"{b.values[metric].value / a.values[metric].value:.3f}",
        }
        for value, i, j in neighbours([c for _, c in kept], n)
        for a, b in [(kept[i][0], kept[j][0])]
        if a.values[metric].value > 0
    ]  # fmt: skip
    shell.chart(points.teeth(rows, n, title(metric).split(" (")[0]), f"{metric} at n + 1 over n")
    st.caption("1 means that one more is free; what stands above it at a multiple of a block's size is the tooth.")


def _text(value: Any) -> Any:
    return "-" if value is None else str(value) if isinstance(value, bool) else value
