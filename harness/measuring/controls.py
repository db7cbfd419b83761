"""Frozen control kernels: they never change, so when they move, the machine has moved. Part of the ruler."""

from __future__ import annotations

from typing import NamedTuple

import torch

from harness.model import MeasureOptions, Value

from .timing.adaptive import StopRule
from .timing.clock import Account, Clock, collect

#: Side of the square matrices and bytes copied, per kind of device. Changing them is a new ruler version.
_GEMM_SIDE = {"cpu": 512, "cuda": 4096}
_COPY_BYTES = {"cpu": 32 << 20, "cuda": 512 << 20}


class Controls(NamedTuple):
    """Medians with intervals, and the raw samples in seconds, of ``control_gemm_s`` and ``control_copy_s``."""

    values: dict[str, Value]
    samples: dict[str, list[float]]


def controls(clock: Clock, device: torch.device, options: MeasureOptions, rule: StopRule) -> Controls:
    """Times both control kernels, cold, by the same rule as cases. Their tensors are freed afterwards."""
    generator = torch.Generator().manual_seed(options.seed)
    side, size = _GEMM_SIDE[device.type], _COPY_BYTES[device.type]
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    a, b = (torch.randn(side, side, generator=generator).to(device=device, dtype=dtype) for _ in range(2))
    product = torch.empty_like(a)
    source = torch.ones(size // 8, dtype=torch.int64, device=device)
    target = torch.zeros_like(source)
    account = Account()
    with torch.no_grad():
        taken = {
            "control_gemm_s": collect(clock, lambda: torch.mm(a, b, out=product), rule, account, cold=True),
            "control_copy_s": collect(clock, lambda: target.copy_(source), rule, account, cold=True),
        }
    clock.take()
    kept = {name: s for name, s in taken.items() if s.values}
    return Controls({n: s.value() for n, s in kept.items()}, {n: s.values for n, s in kept.items()})
