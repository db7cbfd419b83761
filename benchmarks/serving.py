"""What does a token cost in a server whose batches mix lengths, at the median and at the tail?"""

from typing import Any

from benchmarks import SUITE, backends_of
from harness.model.records import Workload
from harness.model.suite import Question, bare_grid

_OP = "serving"
_SMALL: Any = {"heads_q": 4, "heads_kv": 2, "head_dim": 32, "variance": 1.0, "dtype": "float16"}
_LARGE: Any = {"heads_q": 32, "heads_kv": 8, "head_dim": 128, "variance": 1.0, "dtype": "float16"}


def _mixes(mixes: list[list[int]], **axes: Any) -> tuple[Workload, ...]:
    """Prompt lengths of a request drawn alike from each mix."""
    return tuple(
        w
        for mix in mixes
        for w in bare_grid(_OP, lengths=",".join(map(str, mix)), shortest=min(mix), longest=max(mix), **axes)
    )


_ALIKE, _MIXED, _TAIL = [128], [64, 128, 256], [64, 128, 256, 64, 128, 256, 64, 128, 256, 900]

QUESTION = Question(
    name=_OP,
    operation=_OP,
    backends=backends_of(_OP),
    text="requests that arrive at random, dynamic batches, lengths alike, mixed and with a heavy tail: P50, P95, P99",
    suites={
        "nightly": _mixes([_ALIKE, _MIXED], requests=24, rate=0.5, max_batch=8, new_tokens=16, capacity=512, **_SMALL),
        "weekly": (
            *_mixes([_ALIKE, _MIXED, _TAIL], requests=64, rate=[0.25, 0.5, 1.0], max_batch=[4, 16], new_tokens=16,
                    capacity=[1024, 4096], **_SMALL),
            *_mixes([_ALIKE, _MIXED, _TAIL], requests=32, rate=0.5, max_batch=8, new_tokens=16, capacity=1024,
                    **_LARGE),
        ),
        "incidents": _mixes([_ALIKE, _MIXED, _TAIL], requests=32, rate=0.5, max_batch=8, new_tokens=16,
                            capacity=[1024, 2048], **_SMALL),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
