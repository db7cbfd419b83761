"""Query-blocked exact attention in eager PyTorch: no score matrix of q_len x kv_len, invisible keys skipped."""

from __future__ import annotations

from ..backend import Backend, Capabilities, Support

_SUPPORT = Support(masks=("bool", "additive"), window=True, softcap=True)

BACKENDS = (
    Backend(
        "segmented",
        {
            "attention": "kernels.segmented.blocks:attention",
            "varlen_attention": "kernels.segmented.blocks:varlen_attention",
        },
        Capabilities({"cpu": _SUPPORT, "cuda": _SUPPORT}),
        "ours: query blocks of 128, exact softmax over visible keys, recomputed in the backward pass",
        probe="kernels.attention.sdpa:probe",
    ),
)
