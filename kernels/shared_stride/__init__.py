"""Reads of shared memory by the lanes of a warp, a stride of words apart; on a CPU the same sums without banks."""

from __future__ import annotations

from ..backend import Backend, Capabilities, Support

_SUPPORT = Support(dtypes=("float32",), directions=("fwd",))
_BOTH = Capabilities({"cpu": _SUPPORT, "cuda": _SUPPORT})

BACKENDS = (
    Backend(
        "shared_stride",
        {"shared_stride": "kernels.shared_stride.warp:strided"},
        Capabilities({"cuda": _SUPPORT}),
        "ours: one warp a block, CUDA C compiled when first called",
        "needs torch 2.9 or later and a CUDA device",
        probe="kernels.shared_stride.warp:probe",
    ),
    Backend(
        "strided_index",
        {"shared_stride": "kernels.shared_stride.plain:by_index"},
        _BOTH,
        "baseline: the same sums by index; says nothing of banks, only carries the calculator's prediction",
        probe="kernels.attention.sdpa:probe",
    ),
    Backend(
        "strided_views",
        {"shared_stride": "kernels.shared_stride.plain:by_views"},
        _BOTH,
        "baseline: the same sums over one view per lane",
        probe="kernels.attention.sdpa:probe",
    ),
)
