"""What do environment switches do to the path that a call takes?"""

from benchmarks import SUITE, backends_of
from harness.model.records import Workload
from harness.model.suite import Question, grid

#: Each is set in the worker before anything is imported; only recorded variables may stand here.
_SWITCHES = (
    "none",
    "FLASH_ATTN_DISABLE_TMA=1",
    "VLLM_ATTENTION_BACKEND=XFORMERS",
    "ATEN_CPU_CAPABILITY=default",
    "OMP_NUM_THREADS=1",
)


def _under(switches: tuple[str, ...], shapes: tuple[Workload, ...]) -> tuple[Workload, ...]:
    return tuple(Workload(w.operation, {**w.params, "env": env}) for env in switches for w in shapes)


QUESTION = Question(
    name="env_switch",
    operation="attention",
    backends=backends_of("attention"),
    text="variables that libraries read when they are imported, as an axis of the sweep",
    suites={
        "nightly": _under(_SWITCHES[:2], grid("attention", seq_len=256, heads_q=4, causal=True)),
        "weekly": _under(_SWITCHES, grid("attention", seq_len=[512, 2048], head_dim=[64, 128], causal=True)),
        "incidents": _under(_SWITCHES, grid("attention", seq_len=[256, 1024], heads_q=4, causal=True)),
    },
)

attn_latency = QUESTION.benchmark(SUITE)
