"""Declares ``segmented_triton``. Imports neither torch nor triton."""

from __future__ import annotations

from ..backend import STORED, Backend, Capabilities, Support

MODULE = "kernels.segmented.triton_attention"

#: Head sizes below 16 would be padded to the smallest matrix tile; those are left to other backends.
SUPPORT = Support(
    dtypes=("float16", "bfloat16"), max_head_dim=256, head_dim_multiple=8, window=True, softcap=True, kv_dtypes=STORED,
    head_dim_v=True,
)  # fmt: skip

BACKENDS = (
    Backend(
        "segmented_triton",
        {"attention": f"{MODULE}:attention", "varlen_attention": f"{MODULE}:varlen_attention"},
        Capabilities({"cuda": SUPPORT}),
        "ours in Triton: query tiles with grouped heads packed, running softmax, split keys for decode",
        "needs triton 3.6 or later and a CUDA device of compute capability 8.0 or above",
        probe="kernels.triton_support.targets:probe",
    ),
)
