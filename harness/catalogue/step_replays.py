"""Replays of the batch-memory incident that need no timing: a gradient, a mask, a pruned cache."""

from __future__ import annotations

from dataclasses import replace

from harness.model import Case
from harness.model.findings import STATUS
from harness.model.suite import bare_grid
from harness.replay import OPTIONS

from .replays import Replay

#: Nothing here is told by its time, so that little of it is taken.
_BRIEF = replace(OPTIONS, max_seconds=0.02, min_samples=3)
_NO_MEMORY = replace(_BRIEF, memory=False)


def _gradients() -> list[Case]:
    """MHA, GQA and MQA, on one rank and on two."""
    found = bare_grid(
        "kv_gradients", batch=[4, 8, 16], heads_q=8, heads_kv=[8, 2, 1], q_len=4, head_dim=8, hidden_size=16,
        ranks=[1, 2], dtype="float32",
    )  # fmt: skip
    return [Case("kv_gradients", w, "gradients_gloo") for w in found]


def _masks() -> list[Case]:
    found = bare_grid(
        "token_mask", batch=[1, 2, 3, 4], heads_q=2, heads_kv=2, kv_len=64, head_dim=16, steps=[1, 8],
        hidden=[False, True], dtype="float32",
    )  # fmt: skip
    return [Case("token_mask", w, "mask_pooled") for w in found]


def _pruned() -> list[Case]:
    """Whole caches of many lengths, and pruned ones of some: what is flagged is measured again, each in a worker of
    its own."""
    lengths = list(range(64, 208, 16))
    found = [
        w
        for keep, some in ((1.0, lengths), (0.7, lengths[::3]))
        for w in bare_grid(
            "kv_pruning", batch=1, heads_q=4, heads_kv=2, kv_len=some, head_dim=16, steps=2, observed=4, keep=keep,
            shared=False, dtype="float32",
        )
    ]  # fmt: skip
    return [Case("kv_pruning", w, "entropy_pruning") for w in found]


REPLAYS: tuple[Replay, ...] = (
    Replay("B9", "gqa_gradients_summed", STATUS, _gradients, _NO_MEMORY),
    Replay("B10", "mask_per_step", "operator_calls", _masks, _BRIEF),
    Replay("B12", "pruning_zeroes", STATUS, _pruned, _NO_MEMORY),
)
