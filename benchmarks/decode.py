"""How fast is a step over a contiguous cache, with one new token or a few (speculative decoding)?"""

from benchmarks import SUITE, backends_of
from harness.model.suite import Question, grid

QUESTION = Question(
    name="decode",
    operation="attention",
    backends=backends_of("attention"),
    text="q_len 1 to 8 against a contiguous cache, bottom-right causal",
    suites={
        "smoke": (
            *grid("attention", q_len=1, kv_len=[1024, 1025], heads_q=8, heads_kv=2, causal=True),
            *grid("attention", q_len=4, kv_len=1024, heads_q=8, heads_kv=2, causal=True),
        ),
        "nightly": (
            *grid("attention", q_len=1, kv_len=[127, 128, 129, 512, 1024, 1025, 4096, 4097], batch=[1, 8],
                  heads_q=8, heads_kv=[2, 8], causal=True),
            *grid("attention", q_len=[2, 4, 8], kv_len=[1024, 1025], batch=[1, 8], heads_kv=2, causal=True),
        ),
        "weekly": (
            *grid("attention", q_len=1, kv_len=[8192, 16384, 32768], batch=[1, 4, 16], heads_q=32,
                  heads_kv=8, head_dim=128, dtype="bfloat16", causal=True),
            *grid("attention", q_len=1, kv_len=[8192, 32768], batch=4, heads_q=32, heads_kv=8, head_dim=192,
                  head_dim_v=128, dtype="bfloat16", causal=True),
            *grid("attention", q_len=1, kv_len=[8192, 32768], batch=4, heads_q=32, heads_kv=8, head_dim=128,
                  dtype="bfloat16", kv_dtype="float8_e4m3fn", causal=True),
        ),
        "incidents": (
            *grid("attention", q_len=[1, 4], kv_len=[64, 127, 128, 129, 256, 384, 385, 500, 512, 640, 641, 1024, 1153],
                  heads_q=8, heads_kv=2, causal=True),
            *grid("attention", q_len=1, kv_len=[512, 2048, 8192, 32768], batch=4, heads_kv=2, causal=True),
        ),
    },
)  # fmt: skip

attn_latency = QUESTION.benchmark(SUITE)
