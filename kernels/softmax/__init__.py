"""Softmax over the last axis, a block of columns at a time."""

from __future__ import annotations

from ..backend import Backend, Capabilities, Support

_SUPPORT = Support(directions=("fwd",))
_BOTH = Capabilities({"cpu": _SUPPORT, "cuda": _SUPPORT})

BACKENDS = (
    Backend(
        "softmax_true_max",
        {"softmax": "kernels.softmax.blocks:against_true"},
        _BOTH,
        "ours: two passes, exponents against the maximum of the row",
        probe="kernels.attention.sdpa:probe",
    ),
    Backend(
        "softmax_running_max",
        {"softmax": "kernels.softmax.blocks:against_running"},
        _BOTH,
        "ours: one pass, exponents against the maximum so far, earlier blocks rescaled",
        probe="kernels.attention.sdpa:probe",
    ),
)
