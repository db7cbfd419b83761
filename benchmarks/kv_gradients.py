"""Are gradients of shared key and value heads the same however many ranks the batch is spread over?"""

from typing import Any

from benchmarks import SUITE, backends_of
from harness.model.suite import Question, bare_grid

_OP = "kv_gradients"
_SMALL: Any = {"heads_q": 8, "q_len": 8, "head_dim": 16, "hidden_size": 32, "dtype": "float32"}

QUESTION = Question(
    name=_OP,
    operation=_OP,
    backends=backends_of(_OP),
    text="ranks x heads of keys and values (MHA, GQA 4:1, MQA) x batch; the mean over ranks",
    suites={
        "nightly": bare_grid(_OP, batch=16, heads_kv=[8, 2, 1], ranks=[1, 2], **_SMALL),
        "weekly": bare_grid(_OP, batch=[16, 64, 128], heads_kv=[8, 2, 1], ranks=[1, 2, 4], **_SMALL),
        "incidents": bare_grid(_OP, batch=[16, 64], heads_kv=[8, 2, 1], ranks=[1, 2, 4], **_SMALL),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
