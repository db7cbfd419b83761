"""What does rotary embedding move for a batch of unequal lengths?"""

from benchmarks import SUITE, backends_of
from harness.model.records import Workload
from harness.model.suite import Question

_OP = "rope"


def _mix(*lens: int, heads: int = 8, dim: int = 64, dtype: str = "float32") -> Workload:
    """A batch with these lengths."""
    return Workload(
        _OP,
        {
            "batch": len(lens), "q_lens": ",".join(map(str, lens)), "q_len": max(lens), "shortest": min(lens),
            "heads_q": heads, "heads_kv": heads, "head_dim": dim, "dtype": dtype,
        },
    )  # fmt: skip


QUESTION = Question(
    name="rope",
    operation=_OP,
    backends=backends_of(_OP),
    text="equal and mixed lengths, one long sequence among short ones",
    suites={
        "nightly": (_mix(512, 512), _mix(128, 1024), _mix(64, 128, 256, 1024)),
        "weekly": (
            *(_mix(n, n, n, n, dim=128, dtype="bfloat16") for n in (2048, 8192, 32768)),
            *(_mix(n // 8, n // 4, n // 2, n, dim=128, dtype="bfloat16") for n in (2048, 8192, 32768)),
        ),
        "incidents": (*(_mix(n, n) for n in (256, 1024, 4096)), *(_mix(n // 8, n) for n in (256, 1024, 4096)),
                      _mix(4096, 8192, 16384, 32768, heads=2)),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
