"""A cache cut down to the keys that matter most, and decode steps over what is left."""

from __future__ import annotations

from ..backend import Backend, Capabilities, Support

_SUPPORT = Support(directions=("fwd",))
_BOTH = Capabilities({"cpu": _SUPPORT, "cuda": _SUPPORT})

BACKENDS = (
    Backend(
        "entropy_pruning",
        {"kv_pruning": "kernels.kv_pruning.pruning:compacted"},
        _BOTH,
        "ours: kept keys and values are copied together, the rest can be freed",
        probe="kernels.attention.sdpa:probe",
    ),
    Backend(
        "entropy_masking",
        {"kv_pruning": "kernels.kv_pruning.pruning:masked"},
        _BOTH,
        "baseline: the same keys by a mask over the whole cache, which frees nothing",
        probe="kernels.attention.sdpa:probe",
    ),
)
