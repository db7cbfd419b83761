"""Runs and the machines they ran on: what surrounded them, how healthy they were, what they threw away."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

import streamlit as st

from dashboard import data, retry_facts, shell
from dashboard.charts import heat, lines, points
from dashboard.text import STATUS_WORDS, count, label, number, plain, short, when
from db.queries import RunRow
from harness.known_issues import found_in
from harness.model import Status

_SHOWN = 60
_CASES = 2000
_PAIRS = 40
_COLOURS = {
    "ok": "#009988", "unsupported": "#BBBBBB", "skipped": "#BBBBBB", "deselected": "#BBBBBB", "invalid": "#CCBB44",
    "wrong": "#CC3311", "non_finite": "#EE3377", "timed_out": "#EE7733", "out_of_memory": "#9A6FB0",
    "crashed": "#000000",
}  # fmt: skip
_METRICS = ("latency_s", "flops_per_s", "peak_memory_bytes")


@shell.framed
def page(mark: str) -> None:
    """Health over runs, then one run."""
    st.title("Runs and machines")
    if shell.empty(mark):
        return
    top = st.columns([1.5, 3])
    with top[0]:
        machine = shell.machine(mark)
    if machine is None:
        return
    run_id = shell.run(mark, top[1], machine)
    known = data.runs(mark, machine)
    _health(mark, known[:_SHOWN])
    _retries(mark, machine, known)
    run = data.run(mark, run_id) if run_id else None
    if run is not None:
        _one(mark, run)
    with st.expander(f"All runs on this machine ({count(len(known), 'run')})"):
        st.dataframe(
            [
                {
                    "started": when(r.started_at), "suite": r.suite, "reason": label(r.reason),
                    "revision": short(r.revision), "subject": r.subject, "measured": r.measured, "planned": r.planned,
                    "complete": r.complete, "host": r.host, "environment": r.environment, "id": r.id,
                }
                for r in known
            ],
            hide_index=True, width="stretch",
        )  # fmt: skip


def _health(mark: str, shown: list[RunRow]) -> None:
    ids = tuple(r.id for r in shown)
    statuses, controls = data.statuses(mark, ids), data.controls(mark, ids)
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("Cases by status")
        rows = [
            {"day": when(r.started_at)[5:16], "status": label(s), "cases": n}
            for r in reversed(shown)
            for s, n in statuses.get(r.id, {}).items()
        ]
        present = [s for s in _COLOURS if any(s in found for found in statuses.values())]
        shell.chart(
            points.statuses(rows, [label(s) for s in present], [_COLOURS[s] for s in present]), "Cases by status"
        )
    with right:
        st.subheader("Frozen control kernels")
        names = sorted({n for found in controls.values() for n in found})
        made: list[dict[str, Any]] = []
        for name in names:
            values = {
                i: statistics.median(v.value for v in found[name]) for i, found in controls.items() if name in found
            }
            middle = statistics.median(values.values())
            made += [
                {
                    "at": r.started_at * 1e3,
                    "name": name.removeprefix("control_"),
                    "share": values[r.id] / middle,
                    "run": r.id,
                }
                for r in shown
                if r.id in values and middle > 0
            ]
        if made:
            shell.chart(lines.controls(made), "Control kernels over runs")
            st.caption("They never change, so where they move, the machine moved.")
        else:
            st.caption("These runs measured no controls.")


def _retries(mark: str, machine: str, known: list[RunRow]) -> None:
    st.subheader("Tried again")
    runs = retry_facts.reach(known, _SHOWN)
    cells = data.retries(mark, machine, runs)
    span = "the newest run" if runs == 1 else f"the newest {runs} runs"
    if not retry_facts.tally(cells)[1]:
        st.caption(f"Nothing had to be tried again in {span}.")
        return
    rows, left_out = retry_facts.rows(cells, _PAIRS)
    st.markdown(f"In {span}: {plain(retry_facts.told(cells))}")
    shell.chart(heat.retries(rows), "Share of cases tried again, by benchmark and backend over runs")
    rest = f" {count(left_out, 'more row')} with fewer retries not shown." if left_out else ""
    st.caption(
        "**✓**: all that were tried again recovered. **✕**: some did not. Grey: nothing was tried again. Rows without "
        f"any are left out.{rest}"
    )


def _known_issues(packages: dict[str, str]) -> None:
    """What is known to be wrong with the versions that the run had."""
    for issue in found_in(packages):
        st.warning(
            plain(
                f"{issue['package']} {issue['version']}: {issue['symptom']} where {issue['predicate']} "
                f"({issue['provenance']}). {issue['remedy']}."
            ),
            icon=":material/bug_report:",
        )


def _one(mark: str, run: RunRow) -> None:
    st.subheader(f"Run of {when(run.started_at)} UTC")
    st.markdown(
        f"{plain(run.suite)}, {plain(label(run.reason))}, revision **{plain(short(run.revision))}** "
        f"{plain(run.subject)} on {plain(run.device_model)} ({plain(run.host)}), ruler {plain(run.ruler_version)}"
    )
    if not run.complete:
        st.warning(f"Broken off: {run.measured:,} of {run.planned:,} cases were measured.")
    around, troubles, cases = st.tabs(["Environment", "Failures and discarded samples", "Measurements"])
    with around:
        environment = data.environment(mark, run.id)
        flat = environment.without_kernels() if environment else {}
        rows = [{"what": k, "value": v} for k, v in {"kernels": run.kernels_hash, **flat}.items() if v]
        st.dataframe(rows, hide_index=True, width="stretch")
        _known_issues({k: str(v) for k, v in environment.packages.items()} if environment else {})
        st.caption("A/A error rates are not recorded yet; `make bench-detection` measures them.")
    with troubles:
        _troubles(mark, run)
    with cases:
        _cases(mark, run)


def _troubles(mark: str, run: RunRow) -> None:
    found = data.troubles(mark, run.id)
    lost = Counter[str]()
    for t in found:
        lost.update(t.discarded)
    if lost:
        st.markdown("Samples discarded: " + ", ".join(f"{n:,} {plain(label(k))}" for k, n in lost.most_common()))
    rows = [
        {
            "status": STATUS_WORDS.get(t.status, t.status), "backend": t.case.backend, "case": t.case.label,
            "discarded": sum(t.discarded.values()), "why": ", ".join(f"{k} {n}" for k, n in t.discarded.items()),
            "disturbed": _share(t.telemetry.get("disturbed")), "load": t.telemetry.get("load_1m"), "detail": t.detail,
        }
        for t in found
    ]  # fmt: skip
    if rows:
        st.dataframe(
            rows, hide_index=True, width="stretch",
            column_config={
                "disturbed": st.column_config.NumberColumn("disturbed", format="%.0f %%", help="share of samples"),
                "load": st.column_config.NumberColumn("load", format="%.1f", help="of the host, one minute"),
            },
        )  # fmt: skip
    else:
        st.success("Nothing failed and no sample was thrown away.", icon=":material/check_circle:")


def _share(value: Any) -> float | None:
    return float(value) * 100 if isinstance(value, int | float) else None


def _cases(mark: str, run: RunRow) -> None:
    hide = st.toggle("Hide what this device cannot run", value=True, key="hide", bind="query-params")
    without = (Status.UNSUPPORTED.value,) if hide else ()
    kept = data.case_values(mark, run.id, _METRICS, None, without, _CASES)
    st.dataframe(
        [
            {
                "backend": r.case.backend, "benchmark": r.case.benchmark, "case": r.case.label,
                "status": STATUS_WORDS.get(r.status, r.status),
                **{m.removesuffix("_s"): number(r.values[m].value, m) if m in r.values else "" for m in _METRICS},
            }
            for r in kept
        ],
        hide_index=True, width="stretch",
    )  # fmt: skip
    if len(kept) == _CASES:
        st.caption(f"The first {_CASES:,}; `attnwatch export` writes all of them.")
