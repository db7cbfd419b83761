"""Which block-wise softmax stays finite in half precision, at which block size and spread of the scores?"""

from benchmarks import SUITE, backends_of
from harness.model.suite import Question, bare_grid

_OP = "softmax"

QUESTION = Question(
    name="softmax_clip",
    operation=_OP,
    backends=backends_of(_OP),
    text="exponents against the true or the running maximum, with and without a clip",
    suites={
        "nightly": bare_grid(_OP, rows=64, columns=1024, block=128, clip=[None, 10.0], spread=[1.0, 8.0],
                             dtype="float16"),
        "weekly": bare_grid(_OP, rows=512, columns=4096, block=[16, 128], clip=[None, 10.0, 11.0],
                            spread=[1.0, 4.0, 8.0, 32.0], dtype=["float16", "bfloat16", "float32"]),
        "incidents": bare_grid(_OP, rows=64, columns=[64, 128, 512, 1024], block=128, clip=None,
                               spread=[0.25, 0.5, 1.0, 8.0, 16.0], dtype=["float16", "float32"]),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
