"""When does a pool of cache blocks refuse, or move, for want of blocks side by side?"""

from typing import Any

from benchmarks import SUITE, backends_of
from harness.model.records import Workload
from harness.model.suite import Question, bare_grid

_OP = "block_pool"
_WIDTH: Any = {"head_dim": 64, "dtype": "float32"}


def _mixes(mixes: list[list[int]], **axes: Any) -> tuple[Workload, ...]:
    """Lengths of a request in tokens, drawn alike from each mix."""
    return tuple(
        w
        for mix in mixes
        for w in bare_grid(_OP, lengths=",".join(map(str, mix)), shortest=min(mix), longest=max(mix), **axes)
    )


_MIXED = [64, 128, 256, 1024]

QUESTION = Question(
    name=_OP,
    operation=_OP,
    backends=backends_of(_OP),
    text="paged, first fit and best fit over load, page size and mixes of lengths: requests that found no place, and "
    "the two indices of free runs",
    suites={
        "nightly": _mixes([_MIXED], requests=200, capacity=256, page_size=16, held=[0.5, 0.8], **_WIDTH),
        "weekly": _mixes([[64, 128], _MIXED, [16, 16, 16, 4096]], requests=2000, capacity=[1000, 10000],
                         page_size=[16, 64], held=[0.5, 0.8, 0.95], **_WIDTH),
        "incidents": _mixes([[64, 128], _MIXED], requests=600, capacity=1000, page_size=[16, 64], held=[0.5, 0.8],
                            **_WIDTH),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
