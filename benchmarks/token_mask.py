"""What does a mask per token cost that is made in every step, and how many operators does it take?"""

from typing import Any

from benchmarks import SUITE, backends_of
from harness.model.suite import Question, bare_grid

_OP = "token_mask"
_HEADS: Any = {"heads_q": 8, "heads_kv": 8, "head_dim": 64, "dtype": "float32"}

QUESTION = Question(
    name=_OP,
    operation=_OP,
    backends=backends_of(_OP),
    text="decode steps x batch, with and without hidden tokens: operator calls of static, dynamic and pooled masks",
    suites={
        "nightly": bare_grid(_OP, batch=4, kv_len=512, steps=[1, 8], hidden=[False, True], **_HEADS),
        "weekly": bare_grid(_OP, batch=[1, 8], kv_len=[512, 4096], steps=[1, 8, 32], hidden=[False, True],
                            **_HEADS),
        "incidents": bare_grid(_OP, batch=[1, 4], kv_len=[128, 512], steps=[1, 4, 8], hidden=[False, True], **_HEADS),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
