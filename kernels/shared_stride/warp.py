"""One warp a block reads shared memory ``stride`` words apart, ``turns`` times. Needs a CUDA device and NVRTC.

CUDA C and not Triton, which lays shared memory out by itself, so that no access pattern could be asked for.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from kernels.attention.devices import torch_version

WORDS, LANES = 8192, 32

SOURCE = """
extern "C" __global__ void strided(const float* x, float* out, int stride, int turns) {
    __shared__ float held[8192];
    const float* row = x + (long long)blockIdx.x * 8192;
    for (int i = threadIdx.x; i < 8192; i += 32) held[i] = row[i];
    __syncwarp();
    float sum = 0.0f;
    unsigned at = threadIdx.x * stride;
    for (int t = 0; t < turns; ++t) {
        sum += held[(at + t) & 8191];
    }
    out[(long long)blockIdx.x * 32 + threadIdx.x] = sum;
}
"""


def probe(device: str) -> str:
    """Version of torch; raises where there is no device or this torch cannot compile CUDA C."""
    version = torch_version(device)
    if not hasattr(torch.cuda, "_compile_kernel"):
        raise RuntimeError(f"torch {torch.__version__} has no torch.cuda._compile_kernel; 2.9 or later is needed")
    return version


@cache
def _compiled() -> Any:
    return torch.cuda._compile_kernel(SOURCE, "strided")


def strided(x: Tensor, *, stride: int, turns: int) -> Tensor:
    """(B, 32): for each lane the sum over t < turns of x[b, (lane * stride + t) % 8192].

    Args:
        x: (B, 8192) float32, contiguous.
        stride: words between neighbouring lanes.
        turns: reads of each lane.
    """
    out = torch.empty((x.shape[0], LANES), dtype=x.dtype, device=x.device)
    _compiled()((x.shape[0], 1, 1), (LANES, 1, 1), (x, out, stride, turns))
    return out
