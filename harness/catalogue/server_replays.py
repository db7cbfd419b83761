"""Replays of the latency incident's servers: what is counted there shows without any clock."""

from __future__ import annotations

from dataclasses import replace

from harness.model import Case, Scalar, Workload
from harness.model.findings import STATUS
from harness.replay import OPTIONS

from .replays import Replay

#: Of the clock only as much as the bench cannot do without.
_COUNTED = replace(OPTIONS, max_seconds=0.01, min_samples=2)


def served(mix: str, capacity: int, *, max_batch: int = 2, heads_q: int = 4, variance: float = 1.0) -> Workload:
    """Three requests for one token each over prompts of a mix."""
    lengths = [int(n) for n in mix.split(",")]
    params: dict[str, Scalar] = {
        "requests": 3, "rate": 1.0, "max_batch": max_batch, "lengths": mix, "shortest": min(lengths),
        "longest": max(lengths), "new_tokens": 1, "capacity": capacity, "heads_q": heads_q, "heads_kv": 2,
        "head_dim": 16, "variance": variance, "dtype": "float16",
    }  # fmt: skip
    return Workload("serving", params)


def _mixes() -> list[Case]:
    """Slots that prompts fill whole, slots that they do not, and values that leave float16's range."""
    full = [served(str(n), n, max_batch=b) for n in (128, 256, 384, 512) for b in (1, 2, 3, 4)]
    partly = [("64,128", 128), ("128", 256), ("64,256", 256), ("128,256", 384), ("256", 512)]
    wide = [served(str(n), n, variance=2e3) for n in (128, 256, 384)]
    return [Case("serving", w, "server_trimmed") for w in (*full, *(served(*one) for one in partly), *wide)]


def _ends() -> list[Case]:
    """Slots filled whole with prompts of one length, at whole blocks of 128 keys and past them."""
    lengths = [(n, b) for n in (128, 256, 384, 512, 640, 768) for b in (1, 2)] + [
        (n, 2) for n in (64, 129, 200, 300, 385, 450)
    ]
    return [Case("serving", served(str(n), n, max_batch=b), "server_trimmed") for n, b in lengths]


def _batches() -> list[Case]:
    """Up to two sizes, which one graph that changed once runs, and more."""
    asked = ("8", "16", "24", "4", "12", "20", "8,16", "8,24", "4,8,24", "8,16,24", "4,8,16", "4,8,16,24")
    found: list[dict[str, Scalar]] = [
        {"sizes": sizes, "distinct": sizes.count(",") + 1, "calls": 5, "hidden_size": 8, "dtype": "float32"}
        for sizes in asked
    ]
    return [Case("compiled_batches", Workload("compiled_batches", p), "compiled_auto") for p in found]


def _pools() -> list[Case]:
    """Requests of up to 16 blocks, and mixes with longer ones."""
    mixes = ("64,128", "64,256", "32,128", "32,256", "128,256", "128,192", "64,192", "16,256", "16,128", "32,64",
             "64,384", "64,128,512", "64,768", "32,64,512")  # fmt: skip
    found = []
    for mix in mixes:
        lengths = [int(n) for n in mix.split(",")]
        params: dict[str, Scalar] = {
            "requests": 120, "capacity": 128, "lengths": mix, "shortest": min(lengths), "longest": max(lengths),
            "page_size": 16, "held": 0.8, "head_dim": 8, "dtype": "float32",
        }  # fmt: skip
        found.append(Case("block_pool", Workload("block_pool", params), "pool_paged"))
    return found


#: Told apart in one night, in which :data:`HIDDEN` is on too: a walk over the capacity leaves it nothing to slow.
TOGETHER: tuple[Replay, ...] = (
    Replay("A4", "server_capacity", "wasted_work_ratio", _mixes, _COUNTED),
    Replay("A4", "server_narrow", STATUS, _mixes, _COUNTED),
    Replay("A6", "compiled_each_size", "compiled_graphs", _batches, _COUNTED),
    Replay("A8", "pool_side_by_side", "misplaced_requests", _pools, _COUNTED),
)
HIDDEN = ("server_boundary",)

REPLAYS: tuple[Replay, ...] = (*TOGETHER, Replay("A4", "server_boundary", "operator_calls", _ends, _COUNTED))
