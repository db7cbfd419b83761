"""Declares ``paged_triton``. Imports neither torch nor triton."""

from __future__ import annotations

from dataclasses import replace

from ..backend import Backend, Capabilities
from ..segmented.triton_backend import SUPPORT

BACKENDS = (
    Backend(
        "paged_triton",
        {"paged_attention": "kernels.paged.triton_attention:paged_attention"},
        Capabilities({"cuda": replace(SUPPORT, directions=("fwd",), max_page_size=256)}),
        "ours in Triton: reads pages through the block table, split keys for decode",
        "needs triton 3.6 or later and a CUDA device of compute capability 8.0 or above",
        probe="kernels.triton_support.targets:probe",
    ),
)
