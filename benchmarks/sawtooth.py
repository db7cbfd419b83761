"""What does one more token or one more column cost, around tiles and powers of two?"""

from benchmarks import SUITE, backends_of
from harness.model.suite import Question, grid


def _around(*centres: int) -> list[int]:
    return [c + d for c in centres for d in (-1, 0, 1)]


QUESTION = Question(
    name="sawtooth",
    operation="attention",
    backends=backends_of("attention"),
    text="n - 1, n, n + 1 of length x head_dim, where banks, tiles and alignment change",
    suites={
        "nightly": grid("attention", seq_len=[1024, 1025], heads_q=4, head_dim=[128, 129], causal=True),
        "weekly": grid("attention", seq_len=_around(256, 384, 1024, 2048), heads_q=4, head_dim=[64, *_around(128)],
                       causal=True),
        "incidents": grid("attention", seq_len=_around(256, 384, 512, 1024), heads_q=2, head_dim=[64, 128, 129],
                          causal=True),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
