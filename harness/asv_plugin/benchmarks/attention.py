"""Functions named ``attn_*``: the persistent worker measures the case, asv gets the raw samples.

This runs in asv's light child process, once for each combination, so it imports no torch. Everything that asv
cannot keep (other metrics, statuses, environment) goes to a bundle beside asv's results.
"""

from __future__ import annotations

import re
from typing import Any

from asv_runner.benchmarks._base import Benchmark
from asv_runner.benchmarks.mark import SkipNotImplemented


class AttentionBenchmark(Benchmark):  # type: ignore[misc]
    """Latency of one workload on one backend; samples are seconds of single calls with cold caches."""

    name_regex = re.compile("^(Attn[A-Z_].+)|(attn_.+)$")

    def __init__(self, name: str, func: Any, attr_sources: list[Any]) -> None:
        super().__init__(name, func, attr_sources)
        # "time" makes asv's compare, continuous and publish treat the numbers as seconds.
        self.type = "time"
        self.unit = "seconds"
        self.rounds = 1

    def run(self, workload: str, backend: str) -> dict[str, Any]:
        """Measure and return ``{"samples": [...], "number": 1}``; NaN for what cannot be asked of the backend."""
        from harness.asv_child import measure_for_asv
        from harness.model import Status

        measured = measure_for_asv(self.func.question, workload, backend)
        if measured.status is Status.OK:
            return {"samples": measured.samples["latency_s"], "number": 1}
        message = f"{measured.status.value}: {measured.detail}"
        if measured.status.failed:
            raise RuntimeError(message)
        raise SkipNotImplemented(message)


export_as_benchmark = [AttentionBenchmark]
