"""How much work must be in flight before memory bandwidth saturates?"""

from benchmarks import SUITE, backends_of
from harness.model.suite import Question, bare_grid

# To 16 MiB: from 32 MiB on a result is mapped anew for each call on a CPU, and that would be measured instead.
_OP = "stream"

QUESTION = Question(
    name="stream",
    operation=_OP,
    backends=backends_of(_OP),
    text="copies of rows of 4 KiB; rows are programs of four warps on a GPU and bytes in flight on a CPU",
    suites={
        "nightly": bare_grid(_OP, rows=[1, 4, 16, 64, 256, 4096], columns=1024, dtype="float32"),
        "weekly": (
            *bare_grid(_OP, rows=[2**n for n in range(13)], columns=1024, dtype="float32"),
            *bare_grid(_OP, rows=[2**n for n in range(0, 13, 2)], columns=1024, dtype="float32",
                       env=["OMP_NUM_THREADS=1", "OMP_NUM_THREADS=2"]),
        ),
        "incidents": bare_grid(_OP, rows=[2**n for n in range(0, 13, 2)], columns=1024, dtype="float32"),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
