"""The replays of the batch-memory incident: exact metrics and statuses, which need no long timing."""

from __future__ import annotations

from dataclasses import replace

from harness.model import Case, Scalar, Workload
from harness.model.findings import STATUS
from harness.model.suite import grid
from harness.replay import OPTIONS

from .replays import Replay

#: What shows is counted: of the clock only as much as the bench cannot do without.
_COUNTED = replace(OPTIONS, max_seconds=0.02, min_samples=3)

#: Bytes that cases of :func:`_limited` may allocate.
LIMIT = 16 << 20


def _cases(benchmark: str, operation: str, found: list[dict[str, Scalar]], *backends: str) -> list[Case]:
    return [Case(benchmark, Workload(operation, params), b) for params in found for b in backends]


def _step(phase: str, batch: int, n: int, **more: Scalar) -> dict[str, Scalar]:
    chunk: dict[str, Scalar] = {"chunk": 64} if phase == "chunked_prefill" else {}
    return {
        "phase": phase, "batch": batch, "q_len": 1 if phase == "decode" else n, "kv_len": n, "heads_q": 2,
        "heads_kv": 1, "head_dim": 16, "dtype": "float32", **chunk, **more,
    }  # fmt: skip


def _growth() -> list[Case]:
    found = [_step(p, 1, n) for p in ("prefill", "chunked_prefill", "decode") for n in (256, 512, 1024, 1536)]
    return _cases("batch_memory", "model_step", found, "step_segmented")


def _limited() -> list[Case]:
    sizes = [
        (1, 64),
        (8, 64),
        (1, 256),
        (4, 256),
        (8, 256),
        (1, 512),
        (2, 512),
        (1, 768),
        (1, 1024),
        (4, 512),
        (2, 768),
        (2, 896),
        (8, 384),
        (1, 1088),
        (5, 512),
    ]
    found = [_step(p, b, n, memory_limit_bytes=LIMIT) for p in ("prefill", "chunked_prefill") for b, n in sizes]
    return _cases("batch_memory", "model_step", found, "step_segmented")


def _switches() -> list[Case]:
    shapes = grid("attention", seq_len=[64, 96, 128, 192, *range(32, 64, 4)], heads_q=1, head_dim=16, causal=True)
    envs = [("none", w) for w in shapes] + [("FLASH_ATTN_DISABLE_TMA=1", w) for w in shapes[:4]]
    return _cases("env_switch", "attention", [{**w.params, "env": env} for env, w in envs], "segmented")


def _mixes() -> list[Case]:
    found: list[dict[str, Scalar]] = [
        {
            "batch": len(lens), "q_lens": ",".join(map(str, lens)), "q_len": max(lens), "shortest": min(lens),
            "heads_q": 1, "heads_kv": 1, "head_dim": 16, "dtype": "float32",
        }
        for lens in ([64, 64], [512, 512], [128] * 3, [256] * 4, [64], [128], [128] * 2, [256], [512], [512] * 3,
                     [192], [192] * 2, [64] * 4, [256] * 2, [64, 512], [128, 512], [64, 128, 256], [64, 64, 128],
                     [192, 256], [128, 192, 192])
    ]  # fmt: skip
    return _cases("rope", "rope", found, "rope_per_length")


REPLAYS: tuple[Replay, ...] = (
    Replay("B1", "step_quadratic", "peak_memory_bytes", _growth, _COUNTED),
    Replay("B1", "step_over_limit", STATUS, _limited, _COUNTED),
    Replay("B2", "switch_copies_cache", "peak_memory_bytes", _switches, _COUNTED),
    Replay("B8", "rope_to_longest", "traffic_bytes", _mixes, _COUNTED),
)
