"""The registry of metrics: name, unit, direction. One line here adds a metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["lower", "higher", "none"]


@dataclass(frozen=True, slots=True)
class Metric:
    """What a number means.

    ``better`` is the direction that users want; ``exact`` marks deterministic metrics, of which any change
    is real; ``judged`` metrics are watched for regressions, the others are context. A change of at most ``slack``, in
    the metric's unit, is kept and not told.
    """

    name: str
    unit: str
    better: Direction
    text: str
    exact: bool = False
    judged: bool = False
    slack: float = 0.0


_METRICS = (
    Metric("latency_s", "s", "lower", "median time of one call, caches cold", judged=True),
    Metric("latency_hot_s", "s", "lower", "median time of one call, caches hot"),
    Metric("host_overhead_s", "s", "lower", "host time to issue one call (CUDA only)"),
    Metric("first_call_s", "s", "lower", "first call in a worker, compilation included"),
    Metric("flops_per_s", "FLOP/s", "higher", "exact unmasked FLOPs over latency_s"),
    Metric("tokens_per_s", "token/s", "higher", "query tokens over latency_s"),
    Metric("bytes_per_s", "B/s", "higher", "q + used K/V + o bytes over latency_s"),
    Metric("peak_memory_bytes", "B", "lower", "peak above the inputs", exact=True, judged=True),
    Metric("output_bytes", "B", "lower", "bytes of the results kept", exact=True),
    Metric("workspace_bytes", "B", "lower", "peak less results", exact=True),
    Metric("input_bytes", "B", "lower", "bytes of the inputs", exact=True),
    Metric("kv_cache_bytes", "B", "lower", "bytes that hold keys and values among the inputs", exact=True),
    Metric("kv_model_bytes", "B", "none", "bytes that the valid keys and values need, by C x L", exact=True),
    Metric(
        "operator_calls",
        "1",
        "lower",
        "operators (CPU) or kernels (CUDA) dispatched",
        exact=True,
        judged=True,
    ),
    Metric("max_abs_error", "1", "lower", "largest error against the oracle"),
    Metric("max_rel_error", "1", "lower", "largest error over the oracle's largest value"),
    Metric("traffic_bytes", "B", "lower", "bytes read and written by operators", exact=True, judged=True),
    Metric("predicted_bank_turns", "1", "none", "turns of a warp by the calculator, a prediction", exact=True),
    *(
        Metric(f"peak_{part}_bytes", "B", "lower", f"of peak_memory_bytes: {text}", exact=True)
        for part, text in (
            ("kv_cache", "a K/V cache made by the call"),
            ("activations", "kept for the backward pass"),
            ("gradients", "gradients"),
            ("optimiser", "state of the optimiser"),
            ("results", "what the call returned"),
            ("workspace", "freed by the call itself"),
            ("other", "neither returned nor freed, or not explained by allocator events"),
        )
    ),
    Metric("wasted_work_ratio", "1", "lower", "FLOPs dispatched over FLOPs needed", exact=True, judged=True),
    *(
        Metric(f"token_p{q}_s", "s", "lower", f"P{q} of the time of a token in a server of the request mix")
        for q in (50, 95, 99)
    ),
    Metric("first_token_p99_s", "s", "lower", "P99 of the time from a request's arrival to its first token"),
    Metric("compiled_graphs", "1", "lower", "graphs compiled from a cold cache", exact=True, judged=True),
    Metric("cache_hit_rate", "1", "higher", "calls that an earlier graph ran", exact=True, judged=True),
    Metric("padding_share", "1", "lower", "rows computed beyond those asked for, over those", exact=True),
    Metric("compile_s", "s", "lower", "time of the calls that compiled"),
    Metric("steady_call_s", "s", "lower", "median time of the calls that did not"),
    Metric(
        "misplaced_requests",
        "1",
        "lower",
        "requests that found no place though blocks enough were free",
        exact=True,
        judged=True,
    ),
    Metric("free_run_scatter", "1", "none", "largest std / mean of the free runs", exact=True),
    Metric("largest_free_share", "1", "none", "smallest largest free run over the capacity", exact=True),
    Metric("status", "1", "none", "how measuring ended; stands where an incident is about no number"),
    Metric("control_gemm_s", "s", "none", "frozen control: matrix product"),
    Metric("control_copy_s", "s", "none", "frozen control: copy"),
)

#: Of compiled GPU code, read without a GPU (:mod:`harness.static`). What is judged here alerts, the rest is kept.
_STATIC = (
    Metric("registers", "1", "lower", "registers per thread", exact=True),
    Metric("spill_bytes", "B", "lower", "spill stores and loads per thread", exact=True, judged=True),
    Metric("stack_bytes", "B", "lower", "stack frame per thread", exact=True),
    Metric("shared_bytes", "B", "lower", "shared memory per block", exact=True),
    Metric("tensor_columns", "1", "lower", "columns of tensor memory per block", exact=True),
    Metric("blocks_per_sm", "1", "higher", "blocks that fit on a multiprocessor", exact=True),
    Metric("occupancy", "1", "higher", "share of a multiprocessor's warps that fit", exact=True, judged=True),
    Metric("instructions", "1", "lower", "machine instructions as they stand in the code", exact=True),
    Metric("matrix_instructions", "1", "none", "matrix instructions of the strongest kind", exact=True),
    Metric("matrix_level", "1", "higher", "3 tensor memory, 2 warp group, 1 warp, 0 none", exact=True, judged=True),
    Metric("local_accesses", "1", "lower", "loads and stores of local memory", exact=True),
    Metric("bank_conflict_ways", "1", "lower", "turns of a matrix load, by the layouts of shared memory", exact=True),
    # A few narrow loads come and go with the epilogue.
    Metric(
        "wide_load_share", "1", "higher", "global loads of 128 bits or more", exact=True, judged=True, slack=0.05
    ),
)  # fmt: skip

STATIC = frozenset(m.name for m in _STATIC)

METRICS: dict[str, Metric] = {m.name: m for m in (*_METRICS, *_STATIC)}

#: The metric that stands for a case where only one can be shown.
PRIMARY = "latency_s"


#: What results of others brought along, by name.
_BROUGHT: dict[str, Metric] = {}


def metric(name: str) -> Metric:
    """The registered metric, what was declared of it, or one with no direction for a name that others bring."""
    return METRICS.get(name) or _BROUGHT.get(name) or Metric(name, "1", "none", "not registered here")


def declare(name: str, unit: str, better: Direction) -> None:
    """Say what a metric of others means, before it is stored; the first to say so is right."""
    _BROUGHT.setdefault(name, Metric(name, unit, better, "brought by results of others"))
