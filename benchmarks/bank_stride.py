"""How many turns does a warp take to read shared memory at a stride, at batches of 32, 64 and 128? GPU only."""

from benchmarks import SUITE, backends_of
from harness.model.suite import Question, bare_grid

_OP = "shared_stride"

QUESTION = Question(
    name="bank_stride",
    operation=_OP,
    backends=backends_of(_OP),
    text="strides of 1 to 33 words x batch, beside the calculator's prediction",
    suites={
        "nightly": bare_grid(_OP, batch=[32, 128], stride=[1, 32, 33], turns=1024, dtype="float32"),
        "weekly": bare_grid(_OP, batch=[32, 64, 128], stride=[1, 2, 3, 4, 8, 16, 17, 31, 32, 33], turns=4096,
                            dtype="float32"),
        "incidents": bare_grid(_OP, batch=[32, 64, 128], stride=[1, 2, 4, 8, 16, 32, 33], turns=4096, dtype="float32"),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
