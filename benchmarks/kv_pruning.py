"""What do decode steps gain from a cache that keeps only the keys that mattered?"""

from typing import Any

from benchmarks import SUITE, backends_of
from harness.model.suite import Question, bare_grid

_OP = "kv_pruning"
_HEADS: Any = {"heads_q": 8, "heads_kv": 2, "head_dim": 64}

QUESTION = Question(
    name=_OP,
    operation=_OP,
    backends=backends_of(_OP),
    text="share of keys kept x length, per head and the same for all heads; by compaction and by a mask",
    suites={
        "nightly": bare_grid(_OP, batch=2, kv_len=1024, steps=8, observed=16, keep=[1.0, 0.7], shared=[False, True],
                             dtype="float32", **_HEADS),
        "weekly": bare_grid(_OP, batch=4, kv_len=[1024, 4096, 16384], steps=32, observed=32,
                            keep=[1.0, 0.9, 0.7, 0.5, 0.25], shared=[False, True], dtype=["float32", "bfloat16"],
                            **_HEADS),
        "incidents": bare_grid(_OP, batch=2, kv_len=[512, 2048], steps=8, observed=16, keep=[1.0, 0.7, 0.4],
                               shared=[False, True], dtype="float32", **_HEADS),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
