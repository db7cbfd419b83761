"""Rows A4, A6 and A8 of the incident catalogue: a server's decode steps, its compiler and its pool of blocks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from benchmarks import block_pool as pool_suite
from benchmarks import serving as serving_suite
from harness.catalogue import fragmentation, server_replays, serving, traffic
from harness.measuring import Bench
from harness.model import Case, MeasureOptions, Workload
from kernels.faults import serving_step

OPTIONS = MeasureOptions(rel_width=0.05, max_seconds=0.5, hot=False)


def measured(bench: Bench, workload: Workload, backend: str) -> dict[str, float]:
    """Metrics of one case; ``RuntimeError`` where it failed."""
    got = bench.measure(Case("incidents", workload, backend), OPTIONS)
    if "latency_s" not in got.metrics:
        raise RuntimeError(f"{backend} {workload.label}: {got.status.value} {got.detail}")
    return {name: value.value for name, value in got.metrics.items()}


def a4(bench: Bench) -> str:
    found = serving.attribute(
        serving_step.step_with, serving_step.FAULTS, traffic.Traffic(80, 200.0, 0), clock=time.process_time
    )
    none, all_three = found.p99[frozenset()], found.p99[frozenset(serving_step.FAULTS)]
    shares = ", ".join(f"{k} {v * 1e3:+.2f}" for k, v in sorted(found.mean_shares.items()))
    alone = ", ".join(f"{k} {found.p99[frozenset([k])].value * 1e3:.2f}" for k in serving_step.FAULTS)
    return (
        f"P99 {none.value * 1e3:.2f} [{none.low * 1e3:.2f}, {none.high * 1e3:.2f}] -> {all_three.value * 1e3:.2f} "
        f"[{all_three.low * 1e3:.2f}, {all_three.high * 1e3:.2f}] ms; alone: {alone}; Shapley (ms): {shares}; "
        f"{_mix(bench)}"
    )


def _mix(bench: Bench) -> str:
    """The suite's server in its own batches: P50 and P99 of a token, and of the first one, over valid keys or all."""
    (work,) = (
        w for w in serving_suite.QUESTION.workloads("incidents")
        if w.params["lengths"] == "64,128,256" and w.params["capacity"] == 1024
    )  # fmt: skip
    parts = []
    for name in ("server_trimmed", "server_fixed"):
        got = bench.measure(Case("serving", work, name), OPTIONS).metrics
        told = ", ".join(
            f"{metric.removesuffix('_s')} {v.value * 1e3:.2f} [{(v.low or 0) * 1e3:.2f}, {(v.high or 0) * 1e3:.2f}]"
            for metric in ("token_p50_s", "token_p99_s", "first_token_p99_s")
            if (v := got.get(metric)) is not None
        )
        parts.append(f"{name} {got['wasted_work_ratio'].value:.1f}x work, {told} ms")
    return "; ".join(parts)


def a6(bench: Bench) -> str:
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # past the limit of graphs it warns at each call
    mixes = {"fixed": [16], "1/8/16/32": [1, 8, 16, 32], "1..64": list(range(1, 65))}
    found = {}
    for name, mix in mixes.items():
        params = {"sizes": ",".join(map(str, mix)), "distinct": len(mix), "calls": 200, "hidden_size": 64}
        work = Workload("compiled_batches", {**params, "dtype": "float32"})
        for way in ("static", "auto", "dynamic", *(("powers", "eights") if name == "1..64" else ())):
            found[name, way] = measured(bench, work, f"compiled_{way}")
    parts = []
    for name in mixes:
        three = [found[name, way] for way in ("static", "auto", "dynamic")]
        rates, graphs, seconds = (
            "/".join(f"{m[metric]:{form}}" for m in three)
            for metric, form in (("cache_hit_rate", ".1%"), ("compiled_graphs", ".0f"), ("compile_s", ".2f"))
        )
        parts.append(f"{name} {rates} ({graphs} graphs, {seconds} s)")
    for way in ("powers", "eights"):
        m = found["1..64", way]
        parts.append(f"{way}: {m['cache_hit_rate']:.1%} at {m['padding_share']:+.0%} rows")
    return "dynamic=False/None/True: " + "; ".join(parts)


def a8(bench: Bench) -> str:
    parts = []
    for policy in ("first_fit", "best_fit", "paged"):
        h = fragmentation.run(fragmentation.trace(3000, seed=0, load=0.42), 1000, policy)  # type: ignore[arg-type]
        parts.append(f"{policy}: flagged {h.flagged():.0%} of the time, {h.fragmented} refused with blocks enough")
    (work,) = (
        w for w in pool_suite.QUESTION.workloads("incidents")
        if (w.params["longest"], w.params["page_size"], w.params["held"]) == (1024, 16, 0.8)
    )  # fmt: skip
    pools = {p: measured(bench, work, f"pool_{p}") for p in ("first_fit", "best_fit", "paged")}
    moves = "/".join(f"{m['misplaced_requests']:.0f}" for m in pools.values())
    slower = pools["first_fit"]["latency_s"] / pools["paged"]["latency_s"]
    indices = pools["paged"]
    parts.append(
        f"a pool that moves instead, {work.params['requests']} requests: first/best/paged moved {moves} times, first "
        f"fit {slower:.1f}x the time of paged; paged reaches scatter {indices['free_run_scatter']:.1f} and a largest "
        f"run of {indices['largest_free_share']:.0%}"
    )
    return "; ".join(parts)


ROWS: dict[str, tuple[str, Callable[[Bench], str]]] = {
    "A4": ("127 -> 419 ms = 142 + 68 + 20 %", a4),
    "A6": ("hit rate 97.3 % -> 11.8 %", a6),
    "A8": ("std/mean > 1.8 or largest < 12 %", a8),
}
REPLAYS = server_replays.REPLAYS
