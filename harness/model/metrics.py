"""The registry of metrics: name, unit, direction. One line here adds a metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["lower", "higher", "none"]


@dataclass(frozen=True, slots=True)
class Metric:
    """What a number means.

    ``better`` is the direction that users want; ``exact`` marks deterministic metrics, of which any change
    is real; ``judged`` metrics are watched for regressions, the others are context.
    """

    name: str
    unit: str
    better: Direction
    text: str
    exact: bool = False
    judged: bool = False


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
    Metric("wasted_work_ratio", "1", "lower", "FLOPs dispatched over FLOPs needed", exact=True, judged=True),
    Metric("status", "1", "none", "how measuring ended; stands where an incident is about no number"),
    Metric("control_gemm_s", "s", "none", "frozen control: matrix product"),
    Metric("control_copy_s", "s", "none", "frozen control: copy"),
)

METRICS: dict[str, Metric] = {m.name: m for m in _METRICS}

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
