"""Where does layer norm lose its numbers: which widths, sizes of values, variances and eps?"""

from benchmarks import SUITE, backends_of
from harness.model.suite import Question, bare_grid

_OP = "layer_norm"

QUESTION = Question(
    name="layer_norm",
    operation=_OP,
    backends=backends_of(_OP),
    text="width x mean x variance x eps x dtype; float16 ends at 65504",
    suites={
        "nightly": bare_grid(_OP, rows=64, hidden_size=[1024, 4096], amplitude=[0.0, 16.0], variance=[1e-4, 1.0],
                             eps=1e-5, dtype=["float16", "float32"]),
        "weekly": (
            *bare_grid(_OP, rows=256, hidden_size=[256, 1024, 4096, 16384], amplitude=[0.0, 2.0, 4.0, 16.0],
                       variance=[0.0, 1e-6, 1.0], eps=[1e-8, 1e-5, 1e-3], dtype="float16"),
            *bare_grid(_OP, rows=256, hidden_size=[1024, 4096, 16384], amplitude=0.0, variance=1.0, eps=1e-5,
                       dtype=["float16", "float32"], direction="bwd"),
        ),
        "incidents": (
            *bare_grid(_OP, rows=32, hidden_size=[256, 1024, 4096], amplitude=0.0, variance=[0.25, 4.0, 30.0, 100.0],
                       eps=1e-5, dtype=["float16", "float32"]),
            *bare_grid(_OP, rows=32, hidden_size=[256, 1024], amplitude=1.0, variance=[0.0, 0.01, 1.0],
                       eps=[1e-8, 1e-6, 1e-5, 1e-3], dtype="float16"),
        ),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
