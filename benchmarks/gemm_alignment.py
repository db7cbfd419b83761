"""Does a product pay for rows that are not aligned, and does padding or splitting mend it?"""

from benchmarks import SUITE, backends_of
from harness.model.records import Workload
from harness.model.suite import Question


def _square(sizes: list[int], pads: list[int], dtypes: list[str]) -> tuple[Workload, ...]:
    """Square products whose left and right rows stand ``size + pad`` elements apart."""
    return tuple(
        Workload("gemm", {"m": n, "n": n, "k": n, "lda": n + pad, "ldb": n + pad, "dtype": dtype})
        for n in sizes for pad in pads for dtype in dtypes
    )  # fmt: skip


QUESTION = Question(
    name="gemm_alignment",
    operation="gemm",
    backends=backends_of("gemm"),
    text="square products around multiples of 32; the same shape with longer rows",
    suites={
        "nightly": _square([512, 513], [0], ["float32"]),
        "weekly": _square([1023, 1024, 1025, 1056], [0, 1, 31], ["float32", "bfloat16"]),
        "incidents": _square([256, 257, 288, 300, 320, 321, 384], [0, 1, 32], ["float32"]),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
