"""What is known of kernels without running them, and what they dispatched where they were run."""

from __future__ import annotations

from collections import Counter

import streamlit as st

from dashboard import data, shell, static_facts
from dashboard.charts import points
from dashboard.text import count, plain, short, when
from db.queries import MeasurementRow
from harness.model import Status
from harness.model.terms import COMPILE_TARGET


@shell.framed
def page(mark: str) -> None:
    """Registers, spills, shared memory and occupancy for each target, what two revisions differ in, and operators."""
    st.title("Static resources")
    if shell.empty(mark):
        return
    targets = {m.device_model: m.fingerprint for m in data.machines(mark) if m.device_kind == COMPILE_TARGET and m.runs}
    if targets:
        _compiled(mark, targets)
    else:
        shell.missing({
            "Registers, spills, shared memory, occupancy per target": "`attnwatch static` compiles our kernels without "
            "a GPU and stores them",
            "Differences between revisions": "the same, of two revisions",
        })  # fmt: skip
    _dispatched(mark)


def _compiled(mark: str, targets: dict[str, str]) -> None:
    top = st.columns([0.8, 2, 2])
    with top[0]:
        target = shell.option("Target", "target", sorted(targets, key=lambda name: (len(name), name)))
    known = {r.id: r for r in data.runs(mark, targets[target])}

    def name(run_id: str) -> str:
        r = known[run_id]
        return f"{when(r.started_at)}  {r.suite}  {short(r.revision)}"

    with top[1]:
        head = shell.option("Revision", "compiled", list(known), names=name)
    earlier = [i for i, r in known.items() if i != head and r.started_at <= known[head].started_at]
    with top[2]:
        base = shell.option("Compared with", "compiled_base", earlier, names=name)
    rows = data.measurements(mark, head)
    st.subheader(f"Compiled for {plain(target)}")
    _summary(mark, head, rows)
    st.dataframe(static_facts.table(rows), hide_index=True, width="stretch", height=320)
    _registers(rows)
    st.subheader("What differs between the two")
    if base is None:
        st.caption("There is no earlier run for this target to compare with.")
        return
    _differences(mark, base, head, rows)


def _summary(mark: str, run_id: str, rows: list[MeasurementRow]) -> None:
    spilling = sum(r.metrics["spill_bytes"].value > 0 for r in rows if "spill_bytes" in r.metrics)
    broken = sum(r.status != Status.OK for r in rows)
    environment = data.environment(mark, run_id)
    compiler = ", ".join(f"{k} {v}" for k, v in sorted(environment.packages.items())) if environment else ""
    st.caption(
        f"{count(len(rows), 'variant')} by {plain(compiler)}: {spilling} spill, {broken} do not compile. "
        "Instructions are counted where they stand in the code, and occupancy is what fits; neither is a speed."
    )


def _registers(rows: list[MeasurementRow]) -> None:
    made = [
        {"backend": str(r.case.params.get("kernel")), "x": float(r.case.params.get("head_dim") or 0),
         "y": r.metrics["registers"].value, "label": r.case.label}
        for r in rows
        if "registers" in r.metrics
    ]  # fmt: skip
    if made:
        shell.chart(points.growth(made, "head_dim", "registers per thread (1)"), "Registers per thread by head size")


def _differences(mark: str, base: str, head: str, rows: list[MeasurementRow]) -> None:
    before = data.measurements(mark, base)
    found = static_facts.differences(before, rows)
    for text, n in (
        ("only in the newer run", static_facts.only_in(rows, before)),
        ("only in the older run", static_facts.only_in(before, rows)),
    ):
        if n:
            st.caption(f"{count(n, 'variant')} {text}.")
    old, new = (data.environment(mark, i) for i in (base, head))
    if old is not None and new is not None and old.packages != new.packages:
        pairs = [(k, old.packages.get(k), v) for k, v in sorted(new.packages.items()) if old.packages.get(k) != v]
        st.warning("Another compiler: " + plain(", ".join(f"{k} {a} -> {b}" for k, a, b in pairs)))
    if not found:
        st.success("Nothing differs in the variants that both hold.")
        return
    tally = Counter(row["alerts"] for row in found)
    st.caption(f"{count(len(found), 'difference')}, of which {tally['yes']} alert.")
    st.dataframe(found, hide_index=True, width="stretch")


def _dispatched(mark: str) -> None:
    st.subheader("Operators or kernels dispatched")
    top = st.columns([1.5, 2, 1.2])
    with top[0]:
        machine = shell.machine(mark)
    run = shell.run(mark, top[1], machine)
    with top[2]:
        benchmark = shell.option("Benchmark", "benchmark", list(data.benchmarks(mark, run)) if run else [])
    rows = data.case_values(mark, run, ("operator_calls",), benchmark) if run else []
    here = [r for r in rows if "operator_calls" in r.values]
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
