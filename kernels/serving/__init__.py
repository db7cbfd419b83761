"""A server's decode steps over a mix of requests in dynamic batches: layer norm and attention of one layer."""

from __future__ import annotations

from ..backend import Backend, Capabilities, Support

_SUPPORT = Support(directions=("fwd",))
_BOTH = Capabilities({"cpu": _SUPPORT, "cuda": _SUPPORT})

BACKENDS = (
    Backend(
        "server_trimmed", {"serving": "kernels.serving.decode:trimmed"}, _BOTH,
        "ours: each token attends to its request's valid keys, layer norm sums in float32",
        probe="kernels.attention.sdpa:probe",
    ),
    Backend(
        "server_fixed", {"serving": "kernels.serving.decode:fixed"}, _BOTH,
        "baseline: each token walks the whole capacity of its slot, unfilled keys masked",
        probe="kernels.attention.sdpa:probe",
    ),
)  # fmt: skip
