"""How fast is the backward pass?"""

from benchmarks import SUITE, backends_of
from harness.model.suite import Question, grid

QUESTION = Question(
    name="backward",
    operation="attention",
    backends=backends_of("attention"),
    text="gradients of q, k and v; the forward pass stands outside the window",
    suites={
        "smoke": grid("attention", seq_len=512, causal=[False, True], direction="bwd"),
        "nightly": (
            *grid("attention", seq_len=[256, 1024, 1025], head_dim=[64, 128], causal=True, direction="bwd"),
            *grid("attention", seq_len=512, batch=4, heads_kv=2, causal=True, direction="bwd"),
        ),
        "weekly": grid("attention", seq_len=[2048, 4096], causal=[False, True], direction="bwd"),
    },
)

attn_latency = QUESTION.benchmark(SUITE)
