"""Runs functions in one child process in which Triton interprets kernels, so that nothing of it leaks into other tests.

``TRITON_INTERPRET`` is read when a kernel is decorated; a process that has imported a kernel compiled cannot go back.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def begin() -> None:
    """First thing in the child, before torch and triton are imported."""
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ["OMP_NUM_THREADS"] = "1"
    import numpy as np
    import torch
    import triton.language as tl
    from triton.runtime import interpreter

    torch.set_num_threads(1)
    builder = interpreter.InterpreterBuilder
    plain = builder.create_dot

    # The interpreter keeps bfloat16 as its bits in uint16 and would multiply those as integers.
    def create_dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        if a.dtype == tl.bfloat16 and a.data.dtype == np.uint16:
            wide = [
                interpreter.TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32) for x in (a, b)
            ]
            return plain(self, *wide, d, *rest)
        return plain(self, a, b, d, *rest)

    builder.create_dot = create_dot


@lru_cache(maxsize=1)
def _pool() -> ProcessPoolExecutor:
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=begin)


def interpreted(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``function(*args, **kwargs)`` in the child; what it raises is raised here."""
    return _pool().submit(function, *args, **kwargs).result()
