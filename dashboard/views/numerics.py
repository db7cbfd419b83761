"""How far results are from the oracle, and what was not finite."""

from __future__ import annotations

from collections import Counter

import streamlit as st

from dashboard import data, shell
from dashboard.charts import points
from dashboard.text import STATUS_WORDS, plain
from harness.model import Status

_WRONG = (Status.WRONG, Status.NON_FINITE)
_LISTED = 200


@shell.framed
def page(mark: str) -> None:
    """Errors by backend, then what failed the gate."""
    st.title("Numerics")
    if shell.empty(mark):
        return
    top = st.columns([1.5, 2, 1.2])
    with top[0]:
        machine = shell.machine(mark)
    run = shell.run(mark, top[1], machine)
    with top[2]:
        benchmark = shell.option("Benchmark", "benchmark", list(data.benchmarks(mark, run)) if run else [])
    rows = data.case_values(mark, run, ("max_abs_error",), benchmark) if run else []
    tally = Counter((r.case.backend, r.status) for r in rows)
    backends = sorted({r.case.backend for r in rows})
    table = [
        {
            "backend": b, "gated and right": tally[b, Status.OK], "wrong": tally[b, Status.WRONG],
            "NaN or infinity": tally[b, Status.NON_FINITE],
            "largest error": max((r.values["max_abs_error"].value for r in rows
                                  if r.case.backend == b and "max_abs_error" in r.values), default=None),
        }
        for b in backends
    ]  # fmt: skip
    if not table:
        st.info("This run has no cases.")
    else:
        st.dataframe(
            table, hide_index=True, width="content",
            column_config={"largest error": st.column_config.NumberColumn(format="%.2e")},
        )  # fmt: skip
    made = [
        {"backend": r.case.backend, "x": float(r.case.params.get("kv_len") or 0), "y": r.values["max_abs_error"].value,
         "label": r.case.label}
        for r in rows
        if "max_abs_error" in r.values
    ]  # fmt: skip
    if made:
        st.subheader("Largest error against the oracle")
        shell.chart(points.growth(made, "kv_len", "largest absolute error (1)"), "Largest error against kv_len")
        st.caption("Results that are exact have no place on a logarithmic axis and are left out.")
    bad = [t for t in (data.troubles(mark, run) if run else []) if t.status in _WRONG][:_LISTED]
    if bad:
        st.subheader("What failed the gate")
        st.dataframe(
            [
                {"backend": t.case.backend, "case": t.case.label, "status": STATUS_WORDS[t.status], "why": t.detail}
                for t in bad
            ],
            hide_index=True, width="stretch",
        )  # fmt: skip
    elif rows:
        st.success(f"Nothing wrong and nothing that is not finite in this run of {plain(len(rows))} cases.")
    shell.missing({
        "The path of a NaN": "`attnwatch trace-nan` finds it on demand; runs keep none",
        "Differences between snapshots": "`attnwatch diff-snapshots` makes and compares them; runs keep none",
    })  # fmt: skip
