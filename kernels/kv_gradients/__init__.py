"""Gradients of the key and value projections of attention, batch split over ranks that are processes of their own."""

from __future__ import annotations

from ..backend import Backend, Capabilities, Support

_CPU = Capabilities({"cpu": Support(directions=("fwd",))})

BACKENDS = (
    Backend(
        "gradients_gloo",
        {"kv_gradients": "kernels.kv_gradients.ranks:averaged"},
        _CPU,
        "ours: each rank has its part of the batch; torch.distributed averages over gloo",
        probe="kernels.kv_gradients.ranks:probe",
    ),
    Backend(
        "gradients_whole",
        {"kv_gradients": "kernels.kv_gradients.ranks:whole"},
        _CPU,
        "baseline: one process holds the whole batch",
        probe="kernels.attention.sdpa:probe",
    ),
)
