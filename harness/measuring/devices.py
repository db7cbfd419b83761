"""From a device's name to what it is timed with."""

from __future__ import annotations

import torch

from harness.model import InfrastructureError, InputError

from .timing.clock import Clock


def device_of(name: str) -> torch.device:
    """The device of that name; ``InputError`` for one that is none, or that this machine has not."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device {name!r}: give cpu, cuda or cuda:N") from None
    count = torch.cuda.device_count() if device.type == "cuda" else 0
    if count and (device.index or 0) >= count:
        raise InputError(f"device {name}: there are {count} devices, cuda:0 to cuda:{count - 1}")
    return device


def clock_for(device: torch.device) -> Clock:
    """The clock for a device; ``InfrastructureError`` where it cannot be used."""
    if device.type == "cpu":
        from .timing.cpu import CpuClock, steady_allocator

        steady_allocator()
        return CpuClock()
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise InfrastructureError(f"device {device}: torch {torch.__version__} sees no CUDA device")
        from .timing.cuda import CudaClock

        return CudaClock(str(device))
    raise InfrastructureError(f"device {device}: only cpu and cuda can be timed")
