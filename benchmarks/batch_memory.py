"""How does memory grow with batch and length, in which phase, and where does it run out?"""

from __future__ import annotations

from benchmarks import SUITE, backends_of
from harness.model.records import Workload
from harness.model.suite import Question

_OP = "model_step"
_PHASES = ("prefill", "chunked_prefill", "decode", "train")


def _steps(
    phases: tuple[str, ...], batches: list[int], lengths: list[int], *, chunk: int = 128, limit: int | None = None,
    **fixed: int | str,
) -> tuple[Workload, ...]:  # fmt: skip
    """Each phase over batch x length; ``limit`` bytes as on a device of that size."""
    shape: dict[str, int | str] = {"heads_q": 4, "heads_kv": 4, "head_dim": 32, "dtype": "float32", **fixed}
    found = []
    for phase in phases:
        for batch in batches:
            for n in lengths:
                one = {"phase": phase, "batch": batch, "q_len": 1 if phase == "decode" else n, "kv_len": n, **shape}
                if phase == "chunked_prefill":
                    one["chunk"] = chunk
                if limit is not None:
                    one["memory_limit_bytes"] = limit
                found.append(Workload(_OP, dict(one)))
    return tuple(found)


QUESTION = Question(
    name="batch_memory",
    operation=_OP,
    backends=backends_of(_OP),
    text="prefill, prefill in chunks, decode and training over batch x length; chunks as the remedy; a limit that some "
    "of them do not fit into",
    suites={
        "nightly": (
            *_steps(_PHASES, [4], [128, 256, 512]),
            *_steps(("prefill", "chunked_prefill"), [1, 4], [512], limit=16 << 20),
        ),
        "weekly": (
            *_steps(_PHASES, [1, 4, 16, 64], [128, 256, 512, 1024, 2048]),
            *_steps(("prefill", "chunked_prefill", "train"), [1, 4, 16, 64], [512, 1024, 2048], limit=512 << 20),
        ),
        "incidents": (
            *_steps(_PHASES, [1, 2, 4], [128, 256, 512, 1024]),
            *_steps(("prefill", "chunked_prefill"), [1, 2, 4, 8], [256, 512, 1024], limit=64 << 20),
        ),
    },
)

attn_latency = QUESTION.benchmark(SUITE)
