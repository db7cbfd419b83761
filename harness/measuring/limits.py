"""What a workload asks of the process around its case: a limit (``memory_limit_bytes``), variables (``env``)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from collections.abc import Callable
from typing import Any

import torch

from harness.model import InputError, Params, Status
from harness.variables import ENV_PARAMETER, axis

from .failures import CaseFailed, data_bytes
from .params import ParamError, optional_integer
from .timing.cpu import LARGEST, M_MMAP_THRESHOLD

_LIMIT = "memory_limit_bytes"

#: Under a limit, blocks of this size or more are mapped one by one.
_MAPPED_FROM = 1 << 16

#: Sizes of the blocks that holes of the heap are filled with, and how many blocks at most.
_HOLES, _MOST_HOLES = tuple(1 << n for n in range(25, 14, -1)), 512


def limited(call: Callable[[], Any], params: Params, device: torch.device) -> Callable[[], Any]:
    """``call`` under the limit of the workload: what it allocates beyond it fails, as on a device of that size.

    ``call`` itself where there is no limit.
    """
    limit = optional_integer(params, _LIMIT)
    if limit is None:
        return call
    most = limit
    if device.type == "cpu":
        held = HeapLimit(most)

        def on_cpu() -> Any:
            with held:
                return call()

        return on_cpu

    def on_cuda() -> Any:
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(device).total_memory
        share = min(1.0, (torch.cuda.memory_allocated(device) + most) / total)
        torch.cuda.set_per_process_memory_fraction(share, device)
        try:
            return call()
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, device)

    return on_cuda


class HeapLimit:
    """Lets allocations beyond ``most`` bytes fail inside its ``with`` blocks, whatever earlier cases left in the heap.

    The holes of the heap are filled until this object goes, since what fits into them no limit of the system would
    notice. Does nothing on systems without RLIMIT_DATA.
    """

    def __init__(self, most: int) -> None:
        self._before: tuple[int, int] | None = None
        self._limit: int | None = None
        try:
            import resource

            libc = ctypes.CDLL(None)
            malloc, free, used = libc.malloc, libc.free, data_bytes()
            self._mallopt: Callable[[int, int], int] = libc.mallopt
            self._resource: Any = resource
            before = resource.getrlimit(resource.RLIMIT_DATA)
        except (ImportError, AttributeError, OSError, ValueError):
            return
        if used is None:
            return
        malloc.argtypes, malloc.restype, free.argtypes = [ctypes.c_size_t], ctypes.c_void_p, [ctypes.c_void_p]
        blocks: list[int] = []
        weakref.finalize(self, _free, free, blocks)
        self._limit = used
        with self:
            for size in _HOLES:
                # Not for ever, should the system not keep to its limit.
                while len(blocks) < _MOST_HOLES and (block := malloc(size)):
                    blocks.append(block)
        self._limit = min(used + most, before[0]) if before[0] != resource.RLIM_INFINITY else used + most

    def __enter__(self) -> None:
        if self._limit is not None:
            self._before = self._resource.getrlimit(self._resource.RLIMIT_DATA)
            self._resource.setrlimit(self._resource.RLIMIT_DATA, (self._limit, self._before[1]))
            # Blocks mapped one by one are counted as they are; in a heap the holes between them would count too.
            self._mallopt(M_MMAP_THRESHOLD, _MAPPED_FROM)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            self._mallopt(M_MMAP_THRESHOLD, LARGEST)
            with contextlib.suppress(ValueError, OSError):  # a kernel has lowered the hard limit
                self._resource.setrlimit(self._resource.RLIMIT_DATA, self._before)


def _free(free: Callable[[int], None], blocks: list[int]) -> None:
    for block in blocks:
        free(block)


def check_asked(params: Params) -> None:
    """Refuse a limit that is none, and to measure under other variables than the workload names: libraries read them
    when they are imported."""
    optional_integer(params, _LIMIT)
    text = params.get(ENV_PARAMETER)
    if text is None:
        return
    try:
        wanted = axis(str(text))
    except InputError as error:
        raise ParamError(str(error)) from None
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            raise CaseFailed(
                Status.INVALID,
                f"{name} is {os.environ.get(name)!r} in this worker where the workload asks for {value!r}",
            )
