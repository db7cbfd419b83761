"""Rows B1 to B8 of the incident catalogue on this machine; ``scripts/bench_incidents.py`` prints them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from harness.catalogue import bandwidth, banks, growth, kv_layout, memory_replays
from harness.catalogue.kv_memory import bytes_per_token
from harness.measuring import Bench
from harness.measuring.allocations import PARTS
from harness.measuring.tracer import MemoryTracer, traced
from harness.model import Case, Measurement, MeasureOptions, Scalar, Status, Workload
from harness.model.suite import grid, ragged
from harness.worker import WorkerClient, WorkerSpec
from kernels.segmented import blocks

OPTIONS = MeasureOptions(rel_width=0.05, max_seconds=0.3, hot=False)
#: For what is counted and not timed.
_BRIEF = MeasureOptions(rel_width=0.5, max_seconds=0.02, min_samples=3, hot=False)
_MIB, _GB = 1 / 2**20, 1e9


def _step(phase: str, batch: int, n: int, **more: Scalar) -> Workload:
    chunk: dict[str, Scalar] = {"chunk": 128} if phase == "chunked_prefill" else {}
    return Workload(
        "model_step",
        {
            "phase": phase, "batch": batch, "q_len": 1 if phase == "decode" else n, "kv_len": n, "heads_q": 4,
            "heads_kv": 4, "head_dim": 32, "dtype": "float32", **chunk, **more,
        },
    )  # fmt: skip


def _ok(bench: Bench, work: Workload, backend: str, options: MeasureOptions = _BRIEF) -> Measurement:
    got = bench.measure(Case("incidents", work, backend), options)
    if got.status is not Status.OK:
        raise RuntimeError(f"{backend} {work.label}: {got.status.value} {got.detail}")
    return got


def _shares(got: Measurement) -> str:
    """Parts of inputs and peak together, the K/V cache wherever it lies."""
    value = {n: v.value for n, v in got.metrics.items()}
    parts = {p: value.get(f"peak_{p}_bytes", 0.0) for p in PARTS}
    parts["kv_cache"] += value.get("kv_cache_bytes", 0.0)
    parts["inputs"] = value["input_bytes"] - value.get("kv_cache_bytes", 0.0)
    total = sum(parts.values())
    assert total == value["input_bytes"] + value["peak_memory_bytes"]
    return ", ".join(
        f"{p} {n / total:.0%}" for p, n in sorted(parts.items(), key=lambda kv: -kv[1]) if n / total >= 0.005
    )


def b1(bench: Bench) -> str:
    """Shares of the peak by phase, exponents per axis, the remedy, and what does not fit."""
    parts = [
        f"{phase} 4 x 1024: {_shares(_ok(bench, _step(phase, 4, 1024), 'step_segmented'))}"
        for phase in ("prefill", "chunked_prefill", "decode", "train")
    ]
    told = []
    for backend in ("step_segmented", "step_scores"):
        rows, peaks = [], []
        for phase in ("prefill", "train"):
            for batch, n in [(1, n) for n in (256, 512, 1024, 2048)] + [(b, 256) for b in (2, 4)]:
                work = _step(phase, batch, n)
                rows.append(Case("incidents", work, backend).columns)
                peaks.append(_ok(bench, work, backend).metrics["peak_memory_bytes"].value)
        found = [f"{dict(x.fixed)['phase']} {x.axis}^{growth.fit(x, peaks)}" for x in growth.lines(rows)]
        told.append(f"{backend} {', '.join(found)}")
    whole, chunks = (
        _ok(bench, _step(p, 4, 1024), "step_segmented").metrics["peak_memory_bytes"].value
        for p in ("prefill", "chunked_prefill")
    )
    limit = 64 << 20
    status = {
        (b, n): bench.measure(
            Case("incidents", _step("prefill", b, n, memory_limit_bytes=limit), "step_scores"), _BRIEF
        ).status.value
        for b in (1, 4, 8)
        for n in (256, 512, 1024)
    }
    out = [f"{b}x{n}" for (b, n), s in status.items() if s == Status.OUT_OF_MEMORY.value]
    cache = bytes_per_token(layers=32, kv_heads=32, head_dim=128, itemsize=2, batch=64) * (2048 + 512) / _GB
    return (
        f"{'; '.join(parts)}; peak grows: {'; '.join(told)}; chunks of 128 take {chunks / whole:.0%} of the peak; "
        f"all scores under {limit * _MIB:.0f} MiB run out at {' '.join(out)} of {len(status)}, the process goes on; "
        f"K/V of a 7B model, batch 64, 2048 + 512 tokens, fp16: {cache:.0f} GB"
    )


def b2(_: Bench) -> str:
    """A switch that this CPU has: the instruction set that torch may use."""
    (work,) = grid("attention", seq_len=1024, heads_q=4, causal=True)
    switches = ("none", "ATEN_CPU_CAPABILITY=default", "FLASH_ATTN_DISABLE_TMA=1")
    with WorkerClient.connect(WorkerSpec("cpu")) as client:
        handles = {
            (env, backend): client.prepare(
                Case("incidents", Workload("attention", {**work.params, "env": env}), backend), OPTIONS
            )
            for env in switches
            for backend in ("sdpa_flash", "segmented")
        }
        taken: dict[tuple[str, str], list[float]] = {key: [] for key in handles}
        for _ in range(15):  # in turns, so that what else the machine does meets all alike
            for key, handle in handles.items():
                taken[key] += client.sample(handle, 1)
        found = {key: statistics.median(samples) for key, samples in taken.items()}
        refused = client.measure(
            Case("incidents", Workload("attention", {**work.params, "env": "HF_TOKEN=x"}), "segmented"), OPTIONS
        )
        client.shutdown()
    ratios = "; ".join(
        f"{env}: " + ", ".join(f"{b} x{found[env, b] / found['none', b]:.2f}" for b in ("sdpa_flash", "segmented"))
        for env in switches[1:]
    )
    return f"time against no switch: {ratios}; a variable that may be a secret is {refused.status.value}, not set"


def b3(_: Bench) -> str:
    rows = []
    for n, d in ((256, 64), (257, 64), (256, 80), (2049, 128), (2049, 80)):
        rows.append(f"{n} x {d} {kv_layout.layout([n], heads=1, head_dim=d, itemsize=2).waste:.0%}")
    lens = [100, 257, 2049, 1024]
    ours = kv_layout.layout(lens, heads=8, head_dim=128, itemsize=2)
    theirs = kv_layout.layout(lens, heads=8, head_dim=128, itemsize=2, stride=256)
    return (
        f"waste: {', '.join(rows)}; blocks at multiples of 256 B: {ours.overlaps()} of {len(ours.blocks) - 1} "
        f"neighbours overlap; at strides of 256 B: {theirs.overlaps()}"
    )


def b4(bench: Bench) -> str:
    rows = []
    for n in (2048, 2049, 32768):
        made = kv_layout.tiles(n, 64)
        rows.append(f"{n} -> {made.count} (waste {made.waste:.1%})")
    took = {}
    for n in (2048, 2049):
        work = ragged("paged_attention", [(1, n)], heads_q=4, heads_kv=2, page_size=64, causal=True)
        took[n] = _ok(bench, work, "paged").metrics["kv_cache_bytes"].value
    tile = 64 * 2 * 64 * 4 * 2
    spare = {n: kv_layout.tiles(n, 64).count // 8 for n in took}
    held = {n: took[n] / tile - spare[n] for n in took}
    return (
        f"{', '.join(rows)}; 2049 adds {kv_layout.tiles(2049, 64).step:+.1%}; measured pool: {held[2048]:g} and "
        f"{held[2049]:g} tiles beside the {spare[2048]} spare ones"
    )


def b5(bench: Bench) -> str:
    turns = ", ".join(f"{s}: {banks.strided_ways(s)}" for s in (1, 2, 4, 8, 16, 32, 33))
    work = Workload("shared_stride", {"batch": 32, "stride": 1, "turns": 16, "dtype": "float32"})
    got = bench.measure(Case("incidents", work, "shared_stride"), _BRIEF)
    stored = _ok(bench, work, "strided_index").metrics["predicted_bank_turns"].value
    here = f"{got.status.value} ({got.detail})"
    return (
        f"prediction, turns by stride: {turns}; stride 1 at batch 32/64/128: 1/1/1 (stored with a case: {stored:g}); "
        f"the kernel here: {here}"
    )


def b6(_: Bench) -> str:
    """Bytes in flight against bandwidth, on one thread and on two."""
    told = []
    with WorkerClient.connect(WorkerSpec("cpu")) as client:
        for threads in (1, 2):
            work, bandwidths = [], []
            for n in range(13):
                params: dict[str, Scalar] = {
                    "rows": 2**n, "columns": 1024, "dtype": "float32", "env": f"OMP_NUM_THREADS={threads}"
                }  # fmt: skip
                got = client.measure(Case("incidents", Workload("stream", params), "stream_copy"), OPTIONS)
                if got.status is not Status.OK:
                    raise RuntimeError(got.detail)
                work.append(2.0 * 2**n * 4096)
                # The quickest sample: others use the same memory, and that is not what saturates here.
                bandwidths.append(work[-1] / min(got.samples["latency_s"]))
            f = bandwidth.fit(work, bandwidths)
            told.append(
                f"{threads} thread{'s' * (threads > 1)}: peak {f.peak.value / _GB:.1f} [{f.peak.low / _GB:.1f}, "
                f"{f.peak.high / _GB:.1f}] GB/s, a {f.a}, b {f.b.value / 1024:.0f} [{f.b.low / 1024:.0f}, "
                f"{f.b.high / 1024:.0f}] KiB, largest residual {max(map(abs, f.residuals)):.0%}"
            )
        client.shutdown()
    try:
        bandwidth.fit([1, 2, 3], [1, 2, 3])
        refused = "accepted"
    except ValueError:
        refused = "refused"
    return f"{'; '.join(told)}; a fit of 3 points: {refused}"


def b7(_: Bench) -> str:
    """What tracing costs in processor time, and what it saw."""
    told = []
    assert traced(blocks.attention, None) is blocks.attention
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for n, heads, calls in ((256, 4, 200), (1024, 8, 16), (2048, 8, 4)):
            q, k, v = (torch.randn(1, heads, n, 64) for _ in range(3))
            off, on, seen = [], [], 0
            for _ in range(7):
                off.append(_seconds(blocks.attention, calls, q, k, v))
                start = time.process_time()
                with MemoryTracer() as tracer:
                    call = traced(blocks.attention, tracer)
                    for _ in range(calls):
                        call(q, k, v, causal=True)
                on.append((time.process_time() - start) / calls)
                seen = len(tracer.events) // calls
            told.append(f"{min(off) * 1e3:.1f} ms, {seen} events {min(on) / min(off) - 1:+.1%}")
    finally:
        torch.set_num_threads(threads)
    return f"off: the same function, +0 %; on, segmented attention of {'; '.join(told)}"


def _seconds(function: Callable[..., torch.Tensor], calls: int, *tensors: torch.Tensor) -> float:
    start = time.process_time()
    for _ in range(calls):
        function(*tensors, causal=True)
    return (time.process_time() - start) / calls


def b8(bench: Bench) -> str:
    parts = []
    for lens in ((32768,) * 2, (4096, 8192, 16384, 32768), (256, 32768)):
        params: dict[str, Scalar] = {
            "batch": len(lens), "q_lens": ",".join(map(str, lens)), "q_len": max(lens), "shortest": min(lens),
            "heads_q": 2, "heads_kv": 2, "head_dim": 64, "dtype": "float32",
        }  # fmt: skip
        got = {
            b: _ok(bench, Workload("rope", params), b, OPTIONS).metrics
            for b in ("rope_padded", "rope_per_length", "rope_cached")
        }
        base = got.pop("rope_padded")
        told = ", ".join(
            f"{b.removeprefix('rope_')} traffic {m['traffic_bytes'].value / base['traffic_bytes'].value - 1:+.0%} "
            f"time {m['latency_s'].value / base['latency_s'].value - 1:+.0%}"
            for b, m in got.items()
        )
        parts.append(f"{'/'.join(map(str, lens))}: {told}")
    return "against padded: " + "; ".join(parts)


ROWS: dict[str, tuple[str, Callable[[Bench], str]]] = {
    "B1": ("cache 58, workspace 22, gradients 20 %", b1),
    "B2": ("switches change the path", b2),
    "B3": ("256, 64, strides of 256 B", b3),
    "B4": ("2048 -> 32, 2049 -> 33, 32768 -> 512 (+0.2 %)", b4),
    "B5": ("0/12/28 cycles at batch 32/64/128", b5),
    "B6": ("H100 a=1.85, b=2048; A100 a=1.32, b=1536", b6),
    "B7": ("switched by a variable", b7),
    "B8": ("traffic -37 % at 32k", b8),
}
REPLAYS = memory_replays.REPLAYS
