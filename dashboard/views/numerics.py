"""How far results are from the oracle, and what was not finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from dashboard import data, numeric_facts, shell
from dashboard.charts import points
from dashboard.text import STATUS_WORDS, plain
from harness.model import InputError, Status

_WRONG = (Status.WRONG, Status.NON_FINITE)
_LISTED = 200

Reader = Callable[[str], tuple[str, list[dict[str, Any]]]]
_REPORTS: tuple[tuple[str, str, Reader], ...] = (
    ("The path of a NaN", numeric_facts.TRACE, numeric_facts.path),
    ("Differences between snapshots", numeric_facts.DIFFERENCE, numeric_facts.difference),
)


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
    rows = data.case_values(mark, run, ("max_abs_error", "max_rel_error"), benchmark) if run else []
    table = numeric_facts.rates(rows)
    if not table:
        st.info("This run has no cases.")
    else:
        st.dataframe(
            table, hide_index=True, width="content",
            column_config={
                name: st.column_config.NumberColumn(format="%.2e")
                for name in ("largest error", "over the largest value")
            },
        )  # fmt: skip
        st.caption("Gated are cases whose result was compared with the oracle. Intervals are 95 %.")
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
    needed = {
        title: f"`{numeric_facts.COMMANDS[report]}` records it"
        for title, report, read in _REPORTS
        if not _recorded(title, report, read)
    }
    if needed:
        shell.missing(needed)


def _recorded(title: str, report: str, read: Reader) -> bool:
    """Show a report; False where there is none."""
    text = data.report(report)
    if text is None:
        return False
    st.subheader(title)
    try:
        said, rows = read(text)
    except InputError as error:
        st.error(plain(error))
        return True
    st.markdown(plain(said))
    if rows:
        st.dataframe(rows, hide_index=True, width="stretch")
    st.caption(f"From the report {report}, which belongs to no run.")
    return True
