"""Rows B9 to B15 of the incident catalogue on this machine; ``scripts/bench_incidents.py`` prints them."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from db.engine import Store, open_store
from harness import balance
from harness.bundle import BundleWriter
from harness.catalogue import gradients, lru, micro_batch, pruning, static_replay
from harness.ingest import ingest_bundle
from harness.judge import JudgePlan, judge_night
from harness.measuring import Bench
from harness.model import (
    Case,
    Environment,
    Machine,
    Measurement,
    MeasureOptions,
    Revision,
    Run,
    RunEnd,
    Status,
    TriageState,
    Value,
)
from harness.model.expr import compile_expr
from harness.model.findings import Finding
from harness.model.suite import bare_grid
from harness.static.compiling import records, source
from harness.static.limits import occupancy
from harness.suites import load_suite
from kernels.faults import FAULTS
from kernels.kv_gradients import ranks as kernel_ranks
from kernels.kv_pruning import pruning as kernel_pruning

OPTIONS = MeasureOptions(rel_width=0.05, max_seconds=0.3, hot=False)
#: The change that is planted into made-up nights.
_PLANTED = compile_expr("backend == 'segmented' and q_len == 1")

PRESSURE = "kernels.faults.register_pressure:launches"


def b9(_: Bench) -> str:
    found = gradients.compare(
        kernel_ranks.reduced, kernel_ranks.whole, kinds=[("MHA", 8), ("GQA", 2), ("MQA", 1)], batches=[16, 64, 128],
        ranks=[2, 4], seeds=2,
    )  # fmt: skip
    told = []
    for reduction in ("mean", "sum"):
        for count in (2, 4):
            mine = [r for r in found if (r.reduction, r.ranks) == (reduction, count)]
            norms, variances = ([f"{getattr(r, n).value:.3f}" for r in mine] for n in ("norm", "variance"))
            told.append(f"{reduction} over {count}: norm x{_range(norms)}, variance x{_range(variances)}")
    return f"MHA, GQA, MQA at batch 16, 64, 128, gloo processes, against one process: {'; '.join(told)}"


def _range(values: Sequence[str]) -> str:
    low, high = min(values), max(values)
    return low if low == high else f"{low} to {high}"


def b10(bench: Bench) -> str:
    told = []
    for steps in (1, 8):
        (work,) = bare_grid(
            "token_mask", batch=4, heads_q=8, heads_kv=8, kv_len=512, head_dim=64, steps=steps, hidden=True,
            dtype="float32",
        )  # fmt: skip
        held = {}
        for name in ("static", "pooled", "dynamic"):
            got = bench.measure(Case("incidents", work, f"mask_{name}"), OPTIONS).metrics
            held[name] = f"{name} {got['operator_calls'].value:.0f} calls, {got['latency_s'].value * 1e3:.2f} ms"
        told.append(f"{steps} step{'s' if steps > 1 else ''}: {', '.join(held.values())}")
    return "; ".join(told)


def b11(bench: Bench) -> str:
    """A two-layer model of which the weights fit into 1 MiB and 16 samples do not; the cache model at 1/16 scale."""
    rates = {}
    for size in micro_batch.sizes_between():
        cache = lru.LRU(1 << 16)
        for _ in range(2):
            rates[size] = lru.slice_miss_rate(cache, size, layers=2, weight_lines=256, sample_lines=64)
    ends = {}
    made: micro_batch.Reported | micro_batch.Controller
    for name, made in (("reported", micro_batch.Reported(64)), ("ours", micro_batch.Controller(64))):
        sizes = micro_batch.drive(made, rates.__getitem__, 400)
        low, high = min(sizes[-60:]), max(sizes[-60:])
        ends[name] = f"{name} {f'rests at {low}' if low == high else f'swings between {low} and {high}'}"
        last = sizes[-1]
    speed = {s: _samples_per_s(s) for s in micro_batch.sizes_between()}
    best, worst = max(speed, key=speed.__getitem__), min(speed, key=speed.__getitem__)
    counted = lru.counted_miss_rate([sys.executable, "-c", "pass"])
    misses = ", ".join(f"{s}: {r:.1%}" for s, r in rates.items())
    return (
        f"modelled misses {misses}; {'; '.join(ends.values())}; measured samples/s: ours at {last} {speed[last]:.0f}, "
        f"best static {best} {speed[best]:.0f}, worst {worst} {speed[worst]:.0f}; "
        f"hardware counters {'cannot be read' if counted is None else f'{counted:.1%}'}"
    )


def _samples_per_s(size: int, batch: int = 128) -> float:
    made = torch.Generator().manual_seed(0)
    x = torch.randn(batch, 64, 256, generator=made)
    weights = [torch.randn(256, 256, generator=made) / 16 for _ in range(2)]
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        for at in range(0, batch, size):
            y = x[at : at + size]
            for w in weights:
                y = torch.relu(y @ w)
        times.append(time.perf_counter() - begin)
    return batch / min(times)


def b12(_: Bench) -> str:
    rows = pruning.sweep(kernel_pruning, keeps=[0.7], spreads=[1.0, 4.0], length=4096, steps=32)
    told = []
    for spread, name in ((1.0, "flat"), (4.0, "sharp")):
        mine = {(r.policy, r.shared): r for r in rows if r.spread == spread}
        parts = [
            f"{label} {mine[key].error.value:.3f} (mass {mine[key].mass.value:.1%})"
            for key, label in (
                (("entropy", False), "entropy per head"), (("entropy", True), "shared"),
                (("random", False), "random"), (("recent", False), "newest"),
            )
        ]  # fmt: skip
        told.append(f"{name} attention: {', '.join(parts)}")
    whole = pruning.sweep(kernel_pruning, keeps=[1.0], spreads=[1.0], length=4096, steps=32)[0]
    one = next(r for r in rows if (r.policy, r.shared, r.spread) == ("entropy", False, 1.0))
    share, lost = pruning.zeroing(kernel_pruning, keep=0.7, spread=1.0)
    return (
        f"keep 0.7: {one.bytes - 1:+.1%} bytes, {one.seconds / one.whole_seconds - 1:+.0%} time of a step; largest "
        f"error over largest value {'; '.join(told)}; at 1.0 error {whole.error.value:.0f}; zeroed instead: "
        f"{share - 1:+.0%} bytes, zeroed keys keep {lost:.1%} of the attention"
    )


def b13(_: Bench) -> str:
    told = [f"{n} registers: {occupancy('sm_80', 4, n, 0)[1]:.1%}" for n in (48, 96, 239, 255)]
    (wide,) = records(source(PRESSURE), [90], "full", match="float32 columns 8192")
    return (
        f"sm_80, 4 warps, {', '.join(told)}; 287 is past the 255 of a thread; row softmax of 8192 float32 with 16 "
        f"warps: {wide.registers} registers, {wide.spill_bytes} B spilled, {wide.occupancy:.0%}; measured latency: not "
        "measured here, no GPU"
    )


def b13_replay() -> tuple[bool, bool, str]:
    """(flagged, exact, what was said) of the planted register pressure."""
    fault = FAULTS["register_pressure"]
    flagged, exact, titles = static_replay.said(PRESSURE, fault.name, fault.trigger)
    return flagged, exact, f"replay {fault.name}: {' + '.join(titles) or 'nothing said'}"


def b14(_: Bench) -> str:
    ours, turns, greedy, held_up = [], [], [], 0
    for seed in range(200):
        rng = random.Random(seed)
        lengths = [min(32768, int(rng.lognormvariate(6.5, 1.2)) + 1) for _ in range(64)]
        found = balance.balanced(lengths, 8)
        ours.append(balance.deviation(lengths, found))
        turns.append(balance.deviation(lengths, balance.in_turn(64, 8)))
        greedy.append(len(filled_to_the_mean(lengths, 8)))
        held_up += ours[-1] > 0.08 and balance.heaviest(lengths, found) == max(lengths)
    wrong, good = sum(n != 8 for n in greedy), sum(x <= 0.08 for x in ours)
    return (
        f"64 lengths over 8 ranks, 200 mixes, deviation of the worst rank: in turn median "
        f"{statistics.median(turns):.0%}, worst {max(turns):.0%}; ours median {statistics.median(ours):.1%}, at most "
        f"8 % in {good}, in {held_up} one length alone is the heaviest rank, never more than in turn: "
        f"{all(a <= b + 1e-12 for a, b in zip(ours, turns, strict=True))}; closing a part at the mean gives another "
        f"number of parts in {wrong} of 200"
    )


def filled_to_the_mean(weights: Sequence[float], parts: int) -> list[list[int]]:
    """The greedy that fills one part after the other and closes it at the mean: it may end with more or fewer."""
    mean = sum(weights) / parts
    found: list[list[int]] = [[]]
    load = 0.0
    for i, w in enumerate(weights):
        if found[-1] and load + w > mean:
            found.append([])
            load = 0.0
        found[-1].append(i)
        load += w
    return found


def b15(_: Bench) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds, cases, nights, said = named_after(folder)
        rows, doubled = sent_twice(folder)
    return (
        f"{nights} nights of {cases} cases (made up), sweep end to named trigger, ingest included: {seconds:.1f} s "
        f"({said}); {rows} rows sent twice by 4 writers at once: {doubled} duplicates; full size: tests/scale"
    )


def named_after(folder: Path, nights: int = 30) -> tuple[float, int, int, str]:
    """(seconds from a written bundle to the named trigger, cases, nights, trigger), confirmation aside."""
    cases = [c for c in load_suite("nightly") if c.workload.operation == "attention"]
    with open_store(folder / "n.db") as store:
        for night in range(nights - 1):
            ingest_bundle(store, _night(folder, cases, night, lambda c: 1.0))
        last = _night(folder, cases, nights, lambda c: 1.5 if _PLANTED(c.columns) else 1.0)
        begin = time.monotonic()
        (run_id,) = ingest_bundle(store, last).runs
        plan = JudgePlan("cpu", Path.cwd(), "", "nightly", settle=_as_planted)
        report = judge_night(store, run_id, plan, lambda *_: None, lambda _: None)
        took = time.monotonic() - begin
    return took, len(cases), nights, " + ".join(str(i.trigger) for i in report.new_confirmed) or "nothing"


def _as_planted(store: Store, findings: list[Finding], *_: object) -> list[Finding]:
    """What measuring again would say of the planted change."""
    states = {True: TriageState.CONFIRMED, False: TriageState.DISMISSED}
    return [replace(f, state=states[_PLANTED(f.case.columns)]) for f in findings]


def _night(folder: Path, cases: Sequence[Case], night: int, factor: Callable[[Case], float]) -> Path:
    rng, start = random.Random(night), 1.7e9 + 86400 * night
    environment = Environment(Machine("cpu", "made up"), packages={"torch": "2.13.0"}, kernels_hash=f"k{night}")
    run = Run(
        f"n{night}", "nightly", Revision(f"r{night}", kernels_hash=f"k{night}"), environment, start, planned=len(cases)
    )
    path = folder / f"night-{night}.jsonl"
    with BundleWriter(path) as out:
        out.run(run)
        for i, case in enumerate(cases):
            value = 1e-3 * (1 + i / 100) * factor(case) * rng.lognormvariate(0, 0.01)
            metrics = {"latency_s": Value(value, value * 0.99, value * 1.01, 20)}
            out.measurement(run.id, Measurement(case, Status.OK, start + i, metrics=metrics))
        out.end(RunEnd(run.id, start + 3600, True, len(cases)))
    return path


_WRITER = """
import json, sys
from db.engine import open_store
from harness.ingest import ingest_bundle
with open_store(sys.argv[1]) as store:
    reports = [ingest_bundle(store, path) for path in sys.argv[2:]]
print(json.dumps([sum(r.taken for r in reports), sum(r.duplicates for r in reports)]))
"""


def sent_twice(folder: Path, writers: int = 4) -> tuple[int, int]:
    """(rows stored, rows more than were measured) where every bundle is sent by two writers at once."""
    cases = load_suite("nightly")
    paths = [_night(folder, cases, 100 + n, lambda c: 1.0) for n in range(2 * writers)]
    orders = [paths[k::writers] + paths[(k + 1) % writers :: writers] for k in range(writers)]
    command = [sys.executable, "-c", _WRITER, str(folder / "w.db")]
    running = [subprocess.Popen([*command, *map(str, o)], stdout=subprocess.PIPE, text=True) for o in orders]
    taken = sum(json.loads(p.communicate()[0])[0] for p in running)
    return taken, taken - len(cases) * len(paths)


ROWS: dict[str, tuple[str, Callable[[Bench], str]]] = {
    "B9": ("x4 amplitude; variance +312 % (GQA), +89 % (MHA)", b9),
    "B10": ("up to 8 launches and 1.7 ms more a step", b10),
    "B11": ("miss 9.2 -> 4.1 %; 1842 -> 2156 img/s", b11),
    "B12": ("keep 70 %: memory -28.3 %, latency +1.2 %", b12),
    "B13": ("287 -> 239 registers, occupancy 33 -> 66 %", b13),
    "B14": ("worst deviation 42 % -> < 8 %", b14),
    "B15": ("duplicates 0.002 %; attribution within 90 s", b15),
}

#: Replays that are not nights of a worker: (flagged, exact, what was said).
CHECKS: dict[str, Callable[[], tuple[bool, bool, str]]] = {"B13": b13_replay}
