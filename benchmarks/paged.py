"""What does a paged cache cost: decode, chunked prefill, and a batch that mixes both?"""

from benchmarks import SUITE, backends_of
from harness.model.suite import Question, ragged

_OP = "paged_attention"

QUESTION = Question(
    name="paged",
    operation=_OP,
    backends=backends_of(_OP),
    text="attention through a block table, pages shuffled",
    suites={
        "smoke": (
            *(ragged(_OP, [(1, 256), (1, 1000), (1, 1025), (1, 64)], heads_kv=2, page_size=p, causal=True)
              for p in (16, 128)),
            ragged(_OP, [(256, 512), (1, 1000), (1, 300), (4, 129)], heads_kv=2, page_size=16, causal=True),
        ),
        "nightly": (
            *(ragged(_OP, pairs, heads_q=8, heads_kv=2, head_dim=d, page_size=p, causal=True)
              for p in (1, 16, 64, 128, 256) for d in (64, 128)
              for pairs in ([(1, 512)] * 8, [(1, 64), (1, 127), (1, 1025), (1, 2048)],
                            [(256, 1024), (1, 700), (1, 1500), (4, 129)])),
            *(ragged(_OP, [(chunk, 2048)], heads_kv=2, page_size=64, causal=True) for chunk in (128, 512)),
            *(ragged(_OP, [(q, 1024)] * 4, heads_kv=2, page_size=16, causal=True) for q in (2, 4, 8)),
        ),
        "weekly": tuple(
            ragged(_OP, [(1, n)] * 4, heads_q=32, heads_kv=8, dtype="bfloat16", page_size=p, causal=True, **heads)
            for heads in ({"head_dim": 128}, {"head_dim": 192, "head_dim_v": 128},
                          {"head_dim": 128, "kv_dtype": "float8_e4m3fn"})
            for p in (16, 128, 256) for n in (8192, 32768)
        ),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
