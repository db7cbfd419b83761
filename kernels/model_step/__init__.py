"""One attention layer as a server or a trainer runs it: prefill, prefill in chunks, a decode step, a training step."""

from __future__ import annotations

from ..backend import Backend, Capabilities, Support

_SUPPORT = Support(directions=("fwd",))
_BOTH = Capabilities({"cpu": _SUPPORT, "cuda": _SUPPORT})

BACKENDS = (
    Backend(
        "step_segmented",
        {"model_step": "kernels.model_step.layer:segmented"},
        _BOTH,
        "ours: attention in blocks of queries, nothing of the size q_len x kv_len is kept",
        probe="kernels.attention.sdpa:probe",
    ),
    Backend(
        "step_scores",
        {"model_step": "kernels.model_step.layer:scores"},
        _BOTH,
        "baseline: all scores of a batch at once",
        probe="kernels.attention.sdpa:probe",
    ),
)
