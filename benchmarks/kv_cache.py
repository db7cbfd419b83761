"""What does a decode step pay for keys that are allocated and not there?"""

from benchmarks import SUITE, backends_of
from harness.model.records import Workload
from harness.model.suite import Question, ragged


def _steps(capacities: list[int], mixes: list[list[int]], **fixed: int | str) -> tuple[Workload, ...]:
    """One new token of each request of a mix, for the capacities that hold it."""
    return tuple(
        ragged("kv_cache", [(1, n) for n in mix], capacity=capacity, **fixed)
        for capacity in capacities for mix in mixes if max(mix) <= capacity
    )  # fmt: skip


_SMALL = [[64] * 2, [128] * 2, [256] * 2, [1024] * 2, [64, 128, 256]]

QUESTION = Question(
    name="kv_cache",
    operation="kv_cache",
    backends=backends_of("kv_cache"),
    text="a cache allocated at a capacity: whole capacity against valid keys, alike and mixed lengths",
    suites={
        "nightly": _steps([256, 1024], _SMALL, layers=2),
        "weekly": _steps([512, 1024, 4096], [*_SMALL, [64, 128, 256] * 4, [17, 100, 1000, 250]], layers=4,
                         heads_kv=2, head_dim=128, dtype="bfloat16"),
        "incidents": _steps([64, 128, 256, 512, 1024, 2048], [[64] * 2, [128] * 2, [256] * 2, [512] * 2, [1024] * 2,
                                                             [64, 128, 256]], layers=2),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
