"""What does a ragged batch cost against padding it?"""

from benchmarks import SUITE, backends_of
from harness.model.suite import Question, ragged

QUESTION = Question(
    name="varlen",
    operation="varlen_attention",
    backends=backends_of("varlen_attention"),
    text="packed sequences of different lengths",
    suites={
        "smoke": (
            ragged("varlen_attention", [(64, 64), (128, 128), (256, 256), (1000, 1000)], causal=True),
            ragged("varlen_attention", [(300, 300), (1, 513), (0, 0), (1, 1025), (33, 200)], heads_kv=2, causal=True),
        ),
        "nightly": (
            *(ragged("varlen_attention", [(n, n) for n in lens], heads_kv=h, head_dim=d, causal=True)
              for lens in ([64, 128, 256] * 4, [2048, 17, 333, 1], [512] * 8) for h in (2, 8) for d in (64, 128)),
            ragged("varlen_attention", [(512, 1024), (1, 700), (1, 1500), (4, 129)], heads_kv=2, causal=True),
        ),
        "weekly": (ragged("varlen_attention", [(n, n) for n in (8192, 100, 4096, 1, 2000)], heads_kv=2, causal=True),),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
