"""Layer norm over the last axis."""

from __future__ import annotations

from ..backend import Backend, Capabilities, Support

_BOTH = Capabilities({"cpu": Support(), "cuda": Support()})

BACKENDS = (
    Backend(
        "layer_norm_fp32",
        {"layer_norm": "kernels.layer_norm.variants:fp32"},
        _BOTH,
        "ours: mean and centred variance in float32, whatever the dtype",
        probe="kernels.attention.sdpa:probe",
    ),
    Backend(
        "layer_norm_native",
        {"layer_norm": "kernels.layer_norm.variants:native"},
        _BOTH,
        "torch.nn.functional.layer_norm",
        probe="kernels.attention.sdpa:probe",
    ),
)
