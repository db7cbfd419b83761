"""The incident catalogue on this machine: every row's reported figure, ours, and whether the service caught the fault.

    bench_incidents.py [--only A1,A13] [--no-replays]

Ends 1 where a replay is not flagged, its trigger is not exact, or a night without a fault is flagged.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from harness.catalogue import (
    banks,
    kv_memory,
    numerics,
    replays,
    step_replays,
)
from harness.catalogue.cache import Version, key_of, reported_key
from harness.measuring import Bench
from harness.model import Case, Workload
from harness.model.suite import grid, ragged
from kernels.faults import FAULTS
from kernels.layer_norm import reference as norm_reference
from kernels.layer_norm import variants
from kernels.softmax import blocks
from kernels.softmax import reference as softmax_reference
from scripts import incidents_a4_a8, incidents_b1_b8, incidents_b9_b15
from scripts.incidents_a4_a8 import OPTIONS, measured

GB = 1e9


def a1(bench: Bench) -> str:
    work = ragged("kv_cache", [(1, n) for n in (64, 128, 256)] * 2, layers=4, capacity=1024, heads_kv=8)
    fixed, trimmed = (measured(bench, work, b) for b in ("kv_fixed", "kv_trimmed"))
    short = measured(bench, ragged("kv_cache", [(1, 64)] * 4, layers=4, capacity=1024, heads_kv=8), "kv_fixed")
    rise = fixed["latency_s"] / trimmed["latency_s"] - 1
    return (
        f"64 of 1024: {short['wasted_work_ratio']:.0f}x work; mix {fixed['wasted_work_ratio']:.1f}x, time {rise:+.0%}"
    )


def a2(bench: Bench) -> str:
    names = ("fp32", "narrow", "narrow_wide_eps", "narrow_guarded")
    rows = numerics.layer_norms(
        {n: getattr(variants, n) for n in names}, norm_reference.layer_norm,
        [(4096, 0.0, 1.0, 1e-5), (4096, 5.0, 1.0, 1e-5), (4096, 20.0, 1.0, 1e-5), (1024, 0.0, 1e-6, 1e-5),
         (1024, 1.0, 0.0, 1e-8)],
    )  # fmt: skip
    parts = []
    for name in names:
        mine = [r for r in rows if r.variant == name]
        bad = statistics.mean(r.not_finite.value for r in mine)
        wrong = statistics.mean(r.wrong.value for r in mine)
        parts.append(f"{name}: {bad:.0%} not finite, {wrong:.0%} wrong")
    return "; ".join(parts)


def a3(bench: Bench) -> str:
    works = {n: grid("attention", q_len=1, kv_len=n, heads_kv=2, causal=True)[0] for n in (1024, 1025)}
    times = {n: measured(bench, work, "segmented")["latency_s"] for n, work in works.items()}
    return f"sound kernel t(1025)/t(1024) = {times[1025] / times[1024]:.2f}; every backend gated on the boundary grid"


def a5(bench: Bench) -> str:
    per_token = kv_memory.bytes_per_token(layers=32, kv_heads=32, head_dim=128, itemsize=2, batch=12)
    model = "/".join(f"{per_token * n / GB:.2f}" for n in (128, 512, 2048))
    gaps = []
    for work in (
        ragged("kv_cache", [(1, 1024)] * 2, layers=2, capacity=1024),
        ragged("kv_cache", [(1, 64)] * 2, layers=2, capacity=1024),
        ragged("paged_attention", [(1, 1000)] * 4, page_size=16, causal=True),
    ):
        backend = "kv_trimmed" if work.operation == "kv_cache" else "paged"
        found = kv_memory.gap(work.params, measured(bench, work, backend)["input_bytes"])
        assert found is not None
        gaps.append(f"{found.share:+.0%}{' ALARM' if found.alarm else ''}")
    return f"7B fp16 batch 12: {model} GB; measured beside model, full/16x capacity/paged: {', '.join(gaps)}"


def a7(bench: Bench) -> str:
    found = {}
    for page in (16, 64, 128, 256):
        work = ragged("paged_attention", [(1, 32768)] * 4, heads_kv=2, page_size=page, causal=True)
        found[page] = measured(bench, work, "paged")["latency_s"]
    flat = measured(bench, grid("attention", q_len=1, kv_len=32768, batch=4, heads_kv=2, causal=True)[0], "segmented")
    pages = "/".join(f"{t * 1e3:.1f}" for t in found.values())
    real = kv_memory.bytes_per_token(layers=32, kv_heads=32, head_dim=128, itemsize=2, batch=4) * 32768 / GB
    return (
        f"contiguous {flat['latency_s'] * 1e3:.1f} ms, pages 16/64/128/256 {pages} ms; "
        f"K/V of 7B at 32K x 4: {real:.1f} GB"
    )


def a9(_: Bench) -> str:
    a: dict[str, str] = {"q": "1:r=2"}
    b = {"q": "1", "r": "2"}
    v = Version("1", "e", "k")
    theirs, ours = reported_key("v", "x", a) == reported_key("v", "x", b), key_of(v, "x", a) == key_of(v, "x", b)
    return f"reported key collides: {theirs}; ours: {ours}"


def a10(_: Bench) -> str:
    sums = {"pairwise": variants.narrow_sum, "sequential": variants.sequential_sum}
    grown = numerics.error_growth(sums, hidden_sizes=[64, 128, 256, 512, 1024, 2048])
    parts = [f"{g.what} {g.summation} H^{g.fitted} (bound H^{g.bound})" for g in grown]
    for one in numerics.loss_scaling(
        variants.native, norm_reference.layer_norm, scales=[1, 1024], gradients=[1e-7, 100.0]
    ):
        parts.append(
            f"scale {one.scale:g}, gradients {one.gradient:g}: {one.flushed.value:.0%} lost, "
            f"{one.overflowed.value:.0%} overflow"
        )
    return "; ".join(parts)


def a11(_: Bench) -> str:
    from harness.tracing import nan, transformer

    found = nan.trace(transformer.overflowing)
    assert found.culprit is not None
    naive = torch.exp(torch.tensor([2.0, torch.inf]))
    ours = torch.softmax(torch.tensor([2.0, torch.inf]), 0).tolist()
    cost = found.traced_s / found.plain_s
    return (
        f"naive softmax {(naive / naive.sum()).tolist()}, torch {ours}; culprit {found.culprit.op} in "
        f"{found.culprit.module}, {len(found.path)} steps to the result; tracing {cost:.0f}x"
    )


def a12(_: Bench) -> str:
    from harness.tracing import snapshots, transformer

    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{n}.jsonl" for n in "abc"]
        for path, function in zip(paths, (transformer.healthy, transformer.healthy, transformer.moved), strict=True):
            snapshots.write(function, path)
        same = snapshots.first_difference(snapshots.read(paths[0]), snapshots.read(paths[1]))
        moved = snapshots.first_difference(snapshots.read(paths[0]), snapshots.read(paths[2]))
    assert moved is not None and moved.a is not None
    return f"two recordings alike: {same is None}; one bias moved: first node {moved.index} {moved.a.node}"


def a13(_: Bench) -> str:
    forms = {"true": blocks.against_true, "running": blocks.against_running, "stale": blocks.against_stale}
    rows = numerics.softmaxes(
        forms, softmax_reference.softmax, clips=[None, 11.0, 10.0], block_sizes=[16, 128], spreads=[1.0, 4.0, 8.0]
    )
    clipped = all(
        r.mse == next(o.mse for o in rows if (o.form, o.clip, o.block, o.spread) == (r.form, None, r.block, r.spread))
        for r in rows
        if r.form != "stale"
    )
    worst = [r for r in rows if r.form == "stale" and (r.block, r.spread) == (16, 8.0)]
    text = ", ".join(
        f"clip {r.clip}: overflow {r.overflow.value:.0%}, MSE {r.mse}, relative error {r.relative_error}" for r in worst
    )
    return f"a clip changes nothing against the true or running maximum: {clipped}; stale, block 16, spread 8: {text}"


def a14(bench: Bench) -> str:
    a, b, padded = banks.tile(1024, 128), banks.tile(1025, 128), banks.tile(1025, 128, pad=1)
    teeth = []
    for backend in ("segmented", "sdpa_flash"):
        times = {
            n: measured(bench, grid("attention", seq_len=n, heads_q=2, head_dim=128, causal=True)[0], backend)[
                "latency_s"
            ]
            for n in banks.around([256, 512, 1024])
        }
        found = ", ".join(f"{t.n}->{t.n + 1} x{t.ratio:.2f}" for t in banks.saw_teeth(times, power=2.0))
        teeth.append(f"{backend} {found or 'none'}")
    return (
        f"turns row/column: 1024 {a.row_ways}/{a.column_ways}, 1025 {b.row_ways}/{b.column_ways}, padded "
        f"{padded.row_ways}/{padded.column_ways}; [1025][128] takes {b.bytes} B of {banks.SHARED_BYTES}: fits {b.fits}"
        f"; saw teeth on this CPU around 256, 512, 1024: {'; '.join(teeth)}"
    )


def a15(bench: Bench) -> str:
    times: dict[tuple[str, int, int], float] = {}
    for n, pad in ((1024, 0), (1024, 1), (1025, 0)):
        for backend in ("gemm_native", "gemm_padded", "gemm_split"):
            work = Workload("gemm", {"m": n, "n": n, "k": n, "lda": n + pad, "ldb": n + pad, "dtype": "float32"})
            times[backend, n, pad] = 2.0 * n**3 / measured(bench, work, backend)["latency_s"] / 1e9
    return "GFLOP/s 1024 / lda 1025 / 1025: " + "; ".join(
        f"{b.removeprefix('gemm_')} "
        + " / ".join(f"{times[b, n, p]:.0f}" for n, p in ((1024, 0), (1024, 1), (1025, 0)))
        for b in ("gemm_native", "gemm_padded", "gemm_split")
    )


def a16(bench: Bench) -> str:
    """Prefill (1 x 1024) and decode (8 x 1 against 2048): every backend that runs here, the best and its margin."""
    scenarios = {
        "prefill": grid("attention", seq_len=1024, heads_q=8, heads_kv=2, causal=True)[0],
        "decode": grid("attention", q_len=1, kv_len=2048, batch=8, heads_q=8, heads_kv=2, causal=True)[0],
    }
    parts = []
    for name, work in scenarios.items():
        found = {}
        for backend in ("segmented", "sdpa_flash", "sdpa_math", "xformers"):
            got = bench.measure(Case("incidents", work, backend), OPTIONS)
            if "latency_s" in got.metrics:
                found[backend] = got.metrics
        order = sorted(found, key=lambda b: found[b]["latency_s"].value)
        best, second = (found[b]["latency_s"] for b in order[:2])
        apart = (best.high or best.value) < (second.low or second.value)
        figures = ", ".join(
            f"{b} {m['tokens_per_s'].value:.0f} tok/s {m['peak_memory_bytes'].value / 1e6:.1f} MB"
            for b, m in found.items()
        )
        margin = (
            f"{order[0]} by {second.value / best.value - 1:.0%}" if apart else f"{order[0]} and {order[1]} within noise"
        )
        parts.append(f"{name}: {figures} -> {margin}")
    return "; ".join(parts)


def a17(bench: Bench) -> str:
    works = [grid("attention", seq_len=2048, heads_q=8, causal=c)[0] for c in (False, True)]
    full, causal = (measured(bench, w, "segmented") for w in works)
    math_bytes = measured(bench, works[1], "sdpa_math")["peak_memory_bytes"]
    return (
        f"causal / full time {causal['latency_s'] / full['latency_s']:.2f}; "
        f"workspace {causal['workspace_bytes'] / 1e6:.0f} MB against {math_bytes / 1e6:.0f} MB with S x S; "
        f"error {causal['max_abs_error']:.1e}"
    )


ROWS: dict[str, tuple[str, Callable[[Bench], str]]] = {
    "A1": ("16x work; P99 +142 %", a1),
    "A2": ("eps 1e-3 cuts NaN by 99.7 %; P99 +68 %", a2),
    "A3": ("P99 +20 %", a3),
    "A4": incidents_a4_a8.ROWS["A4"],
    "A5": ("0.8/3.2/12.8 GB", a5),
    "A6": incidents_a4_a8.ROWS["A6"],
    "A7": ("18.7 -> 9.2 ms; 12.4 -> 6.1 GB", a7),
    "A8": incidents_a4_a8.ROWS["A8"],
    "A9": ("version + entity + sorted params", a9),
    "A10": ("mean O(H eps), variance O(H^2 eps)", a10),
    "A11": ("[2, inf] -> [0, nan]", a11),
    "A12": ("a switch that does not exist", a12),
    "A13": ("clip 11/10: MSE 8.7e-5/2.1e-4, error < 1e-3", a13),
    "A14": ("1025 x 128 conflicts, 1024 does not", a14),
    "A15": ("62.1 vs 21.4 TFLOP/s", a15),
    "A16": ("SDPA advised for latency", a16),
    "A17": ("exact, no S x S", a17),
    **incidents_b1_b8.ROWS,
    **incidents_b9_b15.ROWS,
}

REPLAYS = (*replays.REPLAYS, *incidents_a4_a8.REPLAYS, *incidents_b1_b8.REPLAYS, *step_replays.REPLAYS)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows, with commas between")
    parser.add_argument("--no-replays", action="store_true", help="figures alone")
    given = parser.parse_args()
    only = set(filter(None, given.only.split(",")))
    bench, wrong, begin = Bench("cpu"), 0, time.monotonic()
    print("| row | reported | ours | flagged | trigger exact | seconds |\n|---|---|---|---|---|---|")
    for row, (reported, figure) in ROWS.items():
        if only and row not in only:
            continue
        start = time.monotonic()
        ours = figure(bench)
        flagged, exact = [], []
        for one in REPLAYS if not given.no_replays else ():
            if one.row == row:
                fault = FAULTS[one.fault]
                got = replays.run(one, fault.backend, fault.trigger)
                flagged.append(got.flagged)
                exact.append(got.exact)
                wrong += not (got.flagged and got.exact)
                effect = "" if got.median_effect is None else f" ({got.median_effect:.1f}x)"
                ours += f"; replay {one.fault}{effect}: {' + '.join(got.said) or 'nothing said'}"
        if row in incidents_b9_b15.CHECKS and not given.no_replays:
            hit, right, said = incidents_b9_b15.CHECKS[row]()
            flagged.append(hit)
            exact.append(right)
            wrong += not (hit and right)
            ours += f"; {said}"
        marks = ["/".join("yes" if x else "NO" for x in xs) or "-" for xs in (flagged, exact)]
        print(f"| {row} | {reported} | {ours} | {marks[0]} | {marks[1]} | {time.monotonic() - start:.0f} |", flush=True)
    if not given.no_replays and not only:
        for one in (
            replays.REPLAYS[0],
            replays.REPLAYS[1],
            replays.REPLAYS[-1],
            *incidents_a4_a8.REPLAYS[1:],
            *step_replays.REPLAYS,
            incidents_b1_b8.REPLAYS[-1],
        ):
            found = replays.flagged_without_fault(one)
            wrong += len(found)
            print(f"A/A on the cases of {one.fault}: {len(found)} flagged {found or ''}", flush=True)
    print(f"{time.monotonic() - begin:.0f} s, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
