"""Decode steps under a mask that says for each token whether it may be seen: how the mask is made."""

from __future__ import annotations

from ..backend import Backend, Capabilities, Support

_SUPPORT = Support(directions=("fwd",))
_BOTH = Capabilities({"cpu": _SUPPORT, "cuda": _SUPPORT})


def _backend(name: str, summary: str) -> Backend:
    return Backend(
        f"mask_{name}", {"token_mask": f"kernels.token_mask.steps:{name}"}, _BOTH, summary,
        probe="kernels.attention.sdpa:probe",
    )  # fmt: skip


BACKENDS = (
    _backend("pooled", "ours: written on the host into one reused buffer, sent once a step"),
    _backend("static", "made on the device once for all steps, which must be known beforehand"),
    _backend("dynamic", "baseline: made on the device anew in each step"),
)
