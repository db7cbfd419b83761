"""What do alignment of lengths (to 256) and head sizes (to 64) and tiles of 64 keys cost a cache?"""

from benchmarks import SUITE, backends_of
from harness.model.records import Workload
from harness.model.suite import Question, ragged

_OP = "kv_cache"


def _aligned(lengths: list[int], dims: list[int], **fixed: int | str) -> tuple[Workload, ...]:
    """A cache whose capacity is the length rounded up to 256."""
    return tuple(
        ragged(_OP, [(1, n)] * 2, layers=2, capacity=-(-n // 256) * 256, head_dim=d, heads_kv=2, **fixed)
        for n in lengths
        for d in dims
    )


QUESTION = Question(
    name="kv_layout",
    operation=_OP,
    backends=backends_of(_OP),
    text="lengths around multiples of 256 and head sizes around multiples of 64, padded as the layout would",
    suites={
        "nightly": _aligned([255, 256, 257], [64, 80]),
        "weekly": _aligned([255, 256, 257, 511, 512, 513, 2047, 2048, 2049], [64, 80, 96, 128], dtype="bfloat16"),
        "incidents": _aligned([255, 256, 257, 1024, 1025], [64, 80, 128]),
    },
)

attn_latency = QUESTION.benchmark(SUITE)
