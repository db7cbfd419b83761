"""Incidents come in the order of what they cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.judge.incidents import gather
from harness.model import Case, TriageState, Workload
from harness.model.findings import Finding


def finding(start: str, weight: float, ratio: float, level: float, metric: str = "latency_s") -> Finding:
    case = Case("decode", Workload("attention", {"q_len": 1, "kv_len": len(start)}, weight), "segmented")
    kind = "slower" if metric == "latency_s" else "more"
    return Finding(case, metric, kind, TriageState.CONFIRMED, ratio=ratio, level=level, first_bad=start)


def lost(*findings: Finding) -> list[tuple[str | None, float]]:
    judged: Any = SimpleNamespace(tested={}, compared=9)
    return [(i.findings[0].first_bad, round(i.lost_s, 9)) for i in gather(findings, judged)]


def test_a_little_that_production_runs_often_goes_before_much_that_it_seldom_runs() -> None:
    seldom, often = finding("seldom", 1.0, 3.0, 0.001), finding("often", 1000.0, 1.05, 0.001)
    assert lost(seldom, often) == [("often", 0.05), ("seldom", 0.002)]


def test_other_metrics_and_unknown_ratios_cost_no_time() -> None:
    unknown = finding("unknown", 50.0, 1.5, 0.001)
    bare = Finding(unknown.case, "latency_s", "slower", TriageState.CONFIRMED, first_bad="unknown")
    assert lost(bare, finding("bytes", 9.0, 2.0, 1e6, "peak_memory_bytes")) == [("unknown", 0.0), ("bytes", 0.0)]
