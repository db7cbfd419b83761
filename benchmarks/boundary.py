"""Where do lengths and head sizes that are no round numbers cost more, or go wrong?"""

from typing import Any

from benchmarks import SUITE, backends_of
from harness.model.suite import Question, grid

_AROUND = [n + d for n in (64, 128, 256, 512, 1024) for d in (-1, 0, 1)]

#: Heads of latent attention, and keys and values of 8 bits.
_LATENT: dict[str, Any] = {"head_dim": 192, "head_dim_v": 128, "dtype": "bfloat16", "causal": True}
_EIGHT: dict[str, Any] = {"head_dim": 128, "dtype": "bfloat16", "kv_dtype": "float8_e4m3fn", "causal": True}

QUESTION = Question(
    name="boundary",
    operation="attention",
    backends=backends_of("attention"),
    text="n-1, n, n+1 around powers of two and multiples of 128; odd head sizes, group sizes and types of keys",
    suites={
        "boundary": (
            *grid("attention", seq_len=[*_AROUND, 640, 641, 1153], causal=True),
            *grid("attention", q_len=1, kv_len=[*_AROUND, 640, 641, 1153, 2049], heads_kv=2, causal=True),
            *grid("attention", q_len=4, kv_len=[127, 128, 129, 1025], heads_kv=2, causal=True),
            *grid("attention", seq_len=[256, 257], head_dim=[80, 96, 128, 129, 160, 192, 256], causal=True),
            *grid("attention", seq_len=257, heads_q=[5, 6, 7, 12], heads_kv=1, causal=True),
            *grid("attention", seq_len=[321, 449], causal=[False, True], dtype="bfloat16"),
            *grid("attention", seq_len=[127, 128, 129], **_LATENT),
            *grid("attention", q_len=1, kv_len=[127, 128, 129], heads_kv=2, **_LATENT),
            *grid("attention", seq_len=[127, 128, 129], **_EIGHT),
            *grid("attention", q_len=1, kv_len=[127, 128, 129], heads_kv=2, **_EIGHT),
        ),
        "nightly": (
            *grid("attention", seq_len=[127, 128, 129, 1023, 1025], causal=True),
            *grid("attention", seq_len=257, head_dim=[80, 96, 160, 192, 256], causal=True),
        ),
    },
)

attn_latency = QUESTION.benchmark(SUITE)
