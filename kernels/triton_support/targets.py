"""What of a device a kernel's launch depends on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
import triton


@dataclass(frozen=True)
class Facts:
    """``arch`` is 10 x major + minor compute capability; ``sms`` multiprocessors; ``l2`` and ``shared`` bytes.

    ``shared`` is what one block may use. ``name`` keys what was tuned.
    """

    arch: int
    sms: int
    l2: int
    shared: int
    name: str = ""


#: The first architecture that converts float8_e4m3fn.
EIGHT_SINCE = 89

#: Published parts to compile for where no device is there: A100, H200, B200.
PARTS: dict[int, Facts] = {
    80: Facts(80, 108, 40 << 20, 163 << 10, "sm_80"),
    90: Facts(90, 132, 50 << 20, 227 << 10, "sm_90"),
    100: Facts(100, 148, 126 << 20, 227 << 10, "sm_100"),
}


def interpreting() -> bool:
    """Whether kernels are run by Triton's interpreter (``TRITON_INTERPRET=1`` before they were imported)."""
    return bool(triton.knobs.runtime.interpret)


def facts_of(device: torch.device) -> Facts:
    """Facts of a CUDA device; under the interpreter those of a small imagined one.

    Raises ``NotImplementedError`` for any other device: these kernels have no path there.
    """
    if device.type == "cuda":
        return _of_index(torch.cuda.current_device() if device.index is None else device.index)
    if interpreting():
        return Facts(80, 4, 1 << 20, 163 << 10, "interpreter")
    raise NotImplementedError(f"Triton kernels run on cuda, not on {device.type}")


@lru_cache(maxsize=64)
def _of_index(index: int) -> Facts:
    p = torch.cuda.get_device_properties(index)
    shared = int(getattr(p, "shared_memory_per_block_optin", 0)) or (99 << 10)
    return Facts(10 * p.major + p.minor, p.multi_processor_count, int(p.L2_cache_size), shared, p.name)


def probe(device: str) -> str:
    """Version of triton. Raises where torch sees no CUDA device, or one older than compute capability 8.0."""
    from ..attention.devices import compute_capability, torch_version
    from ..backend import Unavailable

    torch_version(device)
    major, minor = compute_capability(device)
    if major < 8:
        raise Unavailable(f"compute capability {major}.{minor} is below 8.0", "an A100 or later")
    return str(triton.__version__)
