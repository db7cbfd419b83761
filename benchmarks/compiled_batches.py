"""What does a compiler that specialises on shapes do with batches of changing size, and what does padding mend?"""

from benchmarks import SUITE, backends_of
from harness.model.records import Workload
from harness.model.suite import Question

_OP = "compiled_batches"


def _calls(mixes: list[list[int]], calls: int, hidden_sizes: list[int]) -> tuple[Workload, ...]:
    """Calls with batch sizes drawn alike from each mix."""
    return tuple(
        Workload(_OP, {"sizes": ",".join(map(str, mix)), "distinct": len(mix), "calls": calls, "hidden_size": h,
                       "dtype": "float32"})
        for mix in mixes for h in hidden_sizes
    )  # fmt: skip


_FIXED, _FEW, _MANY = [16], [1, 8, 16, 32], list(range(1, 65))

QUESTION = Question(
    name=_OP,
    operation=_OP,
    backends=backends_of(_OP),
    text="one size, 1/8/16/32, and 1 to 64: graphs compiled, calls that find one, rows of padding",
    suites={
        "nightly": _calls([_FIXED, _FEW], 16, [64]),
        "weekly": _calls([_FIXED, [8, 16], _FEW, [1, 2, 4, 8, 16, 32, 64], list(range(1, 13)), _MANY], 200, [64, 512]),
        "incidents": _calls([_FIXED, _FEW, _MANY], 100, [64]),
    },
)

attn_latency = QUESTION.benchmark(SUITE)
