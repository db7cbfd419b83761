"""What does one key more than a whole number of tiles cost in memory?"""

from benchmarks import SUITE, backends_of
from harness.model.records import Workload
from harness.model.suite import Question, ragged

_OP = "paged_attention"


def _around(lengths: list[int], tiles: list[int], **fixed: int | str) -> tuple[Workload, ...]:
    """One request that holds n - 1, n and n + 1 keys in tiles."""
    return tuple(
        ragged(_OP, [(1, n + d)], page_size=t, causal=True, **fixed) for t in tiles for n in lengths for d in (-1, 0, 1)
    )


QUESTION = Question(
    name="tiles",
    operation=_OP,
    backends=backends_of(_OP),
    text="ceil(length / tile) tiles: n - 1, n and n + 1 keys",
    suites={
        "nightly": _around([2048], [64], heads_q=4, heads_kv=2),
        "weekly": _around([2048, 8192, 32768], [16, 64, 128], heads_q=32, heads_kv=8, head_dim=128, dtype="bfloat16"),
        "incidents": _around([2048, 32768], [64], heads_q=4, heads_kv=2),
    },
)

attn_latency = QUESTION.benchmark(SUITE)
