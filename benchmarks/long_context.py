"""What does a decode step over a long context cost through pages of different sizes?"""

from benchmarks import SUITE, backends_of
from harness.model.records import Workload
from harness.model.suite import Question, ragged

_OP = "paged_attention"


def _steps(lengths: list[int], pages: list[int], **fixed: int | str) -> tuple[Workload, ...]:
    """Four requests of one new token each against ``lengths`` keys."""
    return tuple(
        ragged(_OP, [(1, n)] * 4, page_size=page, causal=True, **fixed) for n in lengths for page in pages
    )  # fmt: skip


QUESTION = Question(
    name="long_context",
    operation=_OP,
    backends=backends_of(_OP),
    text="batch 4, one new token, to 32768 keys, page sizes 16 to 256, block tables shuffled",
    suites={
        "nightly": _steps([8192], [16, 256], heads_kv=2),
        "weekly": _steps([2048, 8192, 16384, 32768], [16, 64, 128, 256], heads_q=32, heads_kv=8, head_dim=128,
                         dtype="bfloat16"),
        "incidents": _steps([512, 2048, 8192, 32768], [16, 32, 64, 128, 256], heads_kv=2),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
