"""What is known of kernels without running them."""

from __future__ import annotations

import streamlit as st

from dashboard import data, shell
from dashboard.charts import points


@shell.framed
def page(mark: str) -> None:
    """Dispatched operators now, registers and spills once they are recorded."""
    st.title("Static resources")
    if shell.empty(mark):
        return
    shell.missing({
        "Registers, spills, shared memory, occupancy per target": "need compiled kernels, which runs do not keep yet",
        "Differences between revisions": "need the same",
    })  # fmt: skip
    top = st.columns([1.5, 2, 1.2])
    with top[0]:
        machine = shell.machine(mark)
    run = shell.run(mark, top[1], machine)
    with top[2]:
        benchmark = shell.option("Benchmark", "benchmark", list(data.benchmarks(mark, run)) if run else [])
    rows = data.case_values(mark, run, ("operator_calls",), benchmark) if run else []
    here = [r for r in rows if "operator_calls" in r.values]
    st.subheader("Operators or kernels dispatched")
    if not here:
        st.caption("This run recorded none.")
        return
    shell.chart(
        points.growth(
            [
                {"backend": r.case.backend, "x": float(r.case.params.get("kv_len") or 1),
                 "y": r.values["operator_calls"].value, "label": r.case.label}
                for r in here
            ],
            "kv_len", "operators in one call (1)",
        ),
        "Operators dispatched in one call against kv_len",
    )  # fmt: skip
    st.caption("A step in this count is a change of path, whatever the clock says. Backends with none are left out.")
