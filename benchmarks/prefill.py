"""How fast is the forward pass over a whole prompt?"""

from benchmarks import SUITE, backends_of
from harness.model.suite import Question, grid

QUESTION = Question(
    name="prefill",
    operation="attention",
    backends=backends_of("attention"),
    text="forward attention over a prompt, q_len == kv_len",
    suites={
        "smoke": (
            *grid("attention", seq_len=[256, 1024, 1025], causal=[False, True]),
            *grid("attention", seq_len=512, heads_q=8, heads_kv=2, head_dim=128, causal=True),
            *grid("attention", seq_len=512, dtype="bfloat16", causal=True),
        ),
        "nightly": (
            *grid("attention", seq_len=[128, 512, 1024, 2048], head_dim=[64, 128], dtype=["float32", "bfloat16"],
                  causal=[False, True]),
            *grid("attention", seq_len=1024, batch=[4, 16], causal=True, dtype=["float32", "bfloat16"]),
            *grid("attention", seq_len=1024, heads_q=12, heads_kv=2, causal=True),
            *grid("attention", seq_len=2048, head_dim=64, causal=True, window=256),
        ),
        "weekly": (
            *grid("attention", seq_len=[4096, 8192], head_dim=[64, 128], dtype=["float16", "bfloat16"],
                  causal=[False, True]),
            *grid("attention", seq_len=4096, head_dim=192, head_dim_v=128, dtype="bfloat16", causal=[False, True]),
            *grid("attention", seq_len=4096, head_dim=128, dtype="bfloat16", kv_dtype="float8_e4m3fn", causal=True),
        ),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
