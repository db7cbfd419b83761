"""A row softmax that holds its row in registers, as launches that need no device: with as many warps as a row is wide,
and with one warp for every row, whose threads then need more registers than there are.

:func:`launches` gives the sound ones, or the others where ``ATTNWATCH_FAULTS`` names ``register_pressure``. Labels name
the problem, so that ``python -m harness.static --source kernels.faults.register_pressure:launches`` compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from ..triton_support.launch import Launch
from . import active

NAME = "register_pressure"
WIDTHS = {"pull_request": (64, 128, 256, 512, 1024, 2048), "full": (64, 128, 256, 512, 1024, 2048, 4096, 8192)}
DTYPES = {"float16": torch.float16, "float32": torch.float32}

#: Elements of a row for each thread in the sound launches.
_PER_THREAD = 16


@triton.jit  # type: ignore[untyped-decorator]
def row_softmax(out, x, stride, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    at = row * stride + tl.arange(0, WIDTH)
    value = tl.load(x + at).to(tl.float32)
    shifted = tl.exp(value - tl.max(value, 0))
    tl.store(out + at, (shifted / tl.sum(shifted, 0)).to(out.dtype.element_ty))


def launches(arch: int, grid: str = "pull_request") -> Iterator[tuple[str, Launch]]:
    """(label, launch) per width and dtype; the same for every architecture."""
    faulty = any(fault.name == NAME for fault in active())
    for dtype, kind in DTYPES.items():
        for width in WIDTHS[grid]:
            warps = 1 if faulty else max(1, min(32, width // (32 * _PER_THREAD)))
            x = torch.empty((64, width), dtype=kind, device="meta")
            given = {"out": x, "x": x, "stride": width, "WIDTH": width}
            problem: dict[str, str | int] = {"operation": "softmax", "dtype": dtype, "columns": width}
            yield f"row_softmax {dtype} columns {width}", Launch(row_softmax, 64, given, {"num_warps": warps}, problem)
