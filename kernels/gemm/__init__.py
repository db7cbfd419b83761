"""Matrix product of row-major matrices whose rows may be longer in memory than they are wide (lda, ldb)."""

from __future__ import annotations

from ..backend import Backend, Capabilities, Support

_SUPPORT = Support(directions=("fwd",))
_BOTH = Capabilities({"cpu": _SUPPORT, "cuda": _SUPPORT})

BACKENDS = (
    Backend(
        "gemm_native",
        {"gemm": "kernels.gemm.products:native"},
        _BOTH,
        "torch.matmul on the matrices as they lie",
        probe="kernels.attention.sdpa:probe",
    ),
    Backend(
        "gemm_padded",
        {"gemm": "kernels.gemm.products:padded"},
        _BOTH,
        "remedy: copies into rows of a multiple of 32 elements first where they are not",
        probe="kernels.attention.sdpa:probe",
    ),
    Backend(
        "gemm_split",
        {"gemm": "kernels.gemm.products:split"},
        _BOTH,
        "remedy: the largest part whose sides are multiples of 32, and the strips that are left",
        probe="kernels.attention.sdpa:probe",
    ),
)
