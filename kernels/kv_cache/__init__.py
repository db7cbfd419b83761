"""A decode step of all layers over a K/V cache that is allocated at a capacity and only partly filled."""

from __future__ import annotations

from ..backend import Backend, Capabilities, Support

_SUPPORT = Support(directions=("fwd",))
_BOTH = Capabilities({"cpu": _SUPPORT, "cuda": _SUPPORT})

BACKENDS = (
    Backend(
        "kv_trimmed",
        {"kv_cache": "kernels.kv_cache.steps:trimmed"},
        _BOTH,
        "ours: each request attends to its valid keys only",
        probe="kernels.attention.sdpa:probe",
    ),
    Backend(
        "kv_fixed",
        {"kv_cache": "kernels.kv_cache.steps:fixed"},
        _BOTH,
        "baseline: every request walks the whole capacity, unfilled keys masked",
        probe="kernels.attention.sdpa:probe",
    ),
)
