"""A copy with a known amount of work in flight, for fitting where bandwidth saturates."""

from __future__ import annotations

from ..backend import Backend, Capabilities, Support

_SUPPORT = Support(directions=("fwd",))

BACKENDS = (
    Backend(
        "stream_copy", {"stream": "kernels.stream.copy:whole"}, Capabilities({"cpu": _SUPPORT, "cuda": _SUPPORT}),
        "torch's own copy; the work in flight is the bytes of the tensor", probe="kernels.attention.sdpa:probe",
    ),
    Backend(
        "stream_into", {"stream": "kernels.stream.copy:into"}, Capabilities({"cpu": _SUPPORT, "cuda": _SUPPORT}),
        "torch's copy into a tensor made beforehand", probe="kernels.attention.sdpa:probe",
    ),
    Backend(
        "stream_rows", {"stream": "kernels.stream.triton_copy:rows"}, Capabilities({"cuda": _SUPPORT}),
        "ours: one block of 4 warps a row, so that rows count the resident warps",
        "needs triton and a CUDA device", probe="kernels.attention.sdpa:probe",
    ),
)  # fmt: skip
