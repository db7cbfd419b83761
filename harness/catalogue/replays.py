"""The replays: which cases, which fault, and whether the service named exactly what set it off.

A replay is data. Faults are kernels, so their known triggers are handed in by whoever can import those.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from db.engine import open_store
from harness.model import PRIMARY, Case, MeasureOptions, Workload
from harness.model.expr import compile_expr
from harness.model.findings import STATUS, Incident, NightReport
from harness.model.suite import bare_grid, grid, ragged
from harness.policy import NO_POLICY, Policy, Rule, Settings
from harness.replay import OPTIONS, Say, replay

#: For faults that show in the results, whose latency is beside the point.
_BRIEF = replace(OPTIONS, max_seconds=0.05)


#: For faults that show in what is counted: their time is not worth telling.
COUNTED = Policy(rules=(Rule(Settings(minimum_effect=1e3), metric=(PRIMARY,)),))


@dataclass(frozen=True)
class Replay:
    """One planted fault of a catalogue row; ``metric`` is where it shows. ``cases`` is called when it runs."""

    row: str
    fault: str
    metric: str
    cases: Callable[[], list[Case]]
    options: MeasureOptions = OPTIONS


@dataclass(frozen=True)
class Outcome:
    """What the service said. ``flagged``: findings on all cases that the fault touches and on no other, in the metric
    where it shows among others; ``exact``: one incident, whose predicate holds on the grid exactly where the known one
    does; ``median_effect``: head / base of the cases flagged in that metric."""

    replay: Replay
    flagged: bool
    exact: bool
    said: tuple[str, ...]
    known: str
    median_effect: float | None
    seconds: float


def run(
    one: Replay, backend: str, trigger: str, folder: Path | None = None, *, good_nights: int = 1,
    say: Say = lambda text: None,
) -> Outcome:  # fmt: skip
    """Replay ``one`` in ``folder`` (a temporary one where None) and compare with ``trigger`` of ``backend``. With
    ``good_nights`` 0 the nights that :func:`flagged_without_fault` left in the folder are those before the fault."""
    start = time.monotonic()
    cases = one.cases()
    with tempfile.TemporaryDirectory() as temporary:
        where = folder or Path(temporary)
        where.mkdir(parents=True, exist_ok=True)
        with open_store(where / "replay.db") as store:
            report = replay(
                cases, one.fault, store, where, good_nights=good_nights, options=one.options, policy=policy_of(one),
                say=say,
            )  # fmt: skip
    known = f"backend == {backend!r} and {trigger}"
    wanted = rows_where(cases, known)
    findings = [f for i in report.new_confirmed for f in i.findings]
    shown = [f for f in findings if f.metric == one.metric]
    effects = sorted(f.ratio for f in shown if f.ratio is not None)
    return Outcome(
        one,
        flagged=bool(shown) and {f.case.key for f in findings} == wanted,
        exact=is_exact(report, cases, wanted),
        said=tuple(str(i.trigger) for i in report.new_confirmed),
        known=known,
        median_effect=effects[len(effects) // 2] if effects else None,
        seconds=time.monotonic() - start,
    )


def policy_of(one: Replay) -> Policy:
    """What is told of a night: everything, or all but time where the fault shows elsewhere."""
    return NO_POLICY if one.metric == PRIMARY else COUNTED


def flagged_without_fault(one: Replay, folder: Path | None = None) -> list[str]:
    """What is flagged between two nights that are alike: titles of incidents, of which there should be none."""
    with tempfile.TemporaryDirectory() as temporary:
        where = folder or Path(temporary)
        where.mkdir(parents=True, exist_ok=True)
        with open_store(where / "replay.db") as store:
            report = replay(one.cases(), "", store, where, options=one.options, policy=policy_of(one))
    return [i.title for i in report.new_confirmed]


def is_exact(report: NightReport, cases: Sequence[Case], wanted: set[str]) -> bool:
    """Whether the report has one new incident and its predicate holds exactly on the cases ``wanted``."""
    found: list[Incident] = list(report.new_confirmed)
    return len(found) == 1 and found[0].trigger is not None and rows_where(cases, found[0].trigger) == wanted


def rows_where(cases: Sequence[Case], predicate: str) -> set[str]:
    """Keys of the cases for which a predicate holds."""
    holds = compile_expr(predicate)
    return {c.key for c in cases if holds(c.columns)}


def _asked(benchmark: str, workloads: Sequence[Workload], *backends: str) -> list[Case]:
    return [Case(benchmark, w, b) for w in workloads for b in backends]


def _boundary() -> list[Case]:
    lengths = [192, 127, 128, 129, 256, 384, 385, 500, 512, 640, 641, 1024, 1153]
    steps = grid("attention", q_len=[1, 4], kv_len=lengths, heads_q=8, heads_kv=2, causal=True)
    return _asked("decode", steps, "sdpa_math", "segmented")


def _kv_capacity() -> list[Case]:
    """Full caches and caches filled to a quarter or a third, of lengths and capacities that both have."""
    full = [(n, n) for n in (256, 512, 1024, 1280, 1536, 2048)]
    partly = [(256, 1024), (320, 1280), (384, 1536), (448, 2048), (512, 2048), (512, 1536)]
    steps = [ragged("kv_cache", [(1, n)] * 2, layers=2, capacity=c, heads_kv=2) for n, c in full + partly]
    return _asked("kv_cache", steps, "kv_trimmed", "kv_fixed")


def _wide_values() -> list[Case]:
    found = bare_grid(
        "layer_norm", rows=16, hidden_size=[256, 1024, 4096], amplitude=0.0,
        variance=[0.25, 4.0, 30.0, 100.0, 400.0], eps=1e-5, dtype=["float16", "float32"],
    )  # fmt: skip
    return _asked("layer_norm", found, "layer_norm_fp32", "layer_norm_native")


def _constant_rows() -> list[Case]:
    found = bare_grid(
        "layer_norm", rows=[4, 16], hidden_size=[256, 512, 1024], amplitude=1.0, variance=[0.0, 1.0],
        eps=[1e-8, 1e-5], dtype="float16",
    )  # fmt: skip
    return _asked("layer_norm", found, "layer_norm_fp32", "layer_norm_native")


def _softmax() -> list[Case]:
    found = bare_grid(
        "softmax", rows=32, columns=[64, 128, 512, 768, 1024], block=128, clip=None, spread=[0.25, 1.0, 8.0, 16.0],
        dtype="float16",
    )  # fmt: skip
    return _asked("softmax_clip", found, "softmax_running_max", "softmax_true_max")


def _gemm() -> list[Case]:
    found = [
        Workload("gemm", {"m": n, "n": n, "k": n, "lda": n + pad, "ldb": n + pad, "dtype": "float32"})
        for n in (256, 257, 288, 300, 320, 321)
        for pad in (0, 32)
    ]
    return _asked("gemm_alignment", found, "gemm_native", "gemm_padded")


def _around_tiles() -> list[Case]:
    found = grid("attention", seq_len=[200, 256, 257, 384, 385], heads_q=[1, 2, 4], head_dim=[64, 128], causal=True)
    return _asked("sawtooth", found, "segmented")


def _pages() -> list[Case]:
    found = [
        ragged("paged_attention", [(1, n)] * 2, heads_q=4, heads_kv=2, page_size=page, causal=True)
        for page in (16, 32, 64, 128, 256)
        for n in (512, 768, 1024)
    ]
    return _asked("long_context", found, "paged")


REPLAYS: tuple[Replay, ...] = (
    Replay("A1", "kv_whole_capacity", "latency_s", _kv_capacity),
    Replay("A2", "layer_norm_narrow", STATUS, _wide_values, _BRIEF),
    Replay("A2", "layer_norm_narrow_eps", STATUS, _constant_rows, _BRIEF),
    Replay("A3", "decode_boundary_slow", "latency_s", _boundary),
    Replay("A3", "decode_boundary_wrong", STATUS, _boundary, _BRIEF),
    Replay("A7", "paged_small_pages", "latency_s", _pages),
    Replay("A13", "softmax_stale_max", STATUS, _softmax, _BRIEF),
    Replay("A14", "prefill_sawtooth", "latency_s", _around_tiles),
    Replay("A15", "gemm_unaligned_slow", "latency_s", _gemm),
)
