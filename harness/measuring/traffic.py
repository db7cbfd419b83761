"""How many bytes the operators of a call read and write: exact, and independent of caches and clocks."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts in ``bytes``, over the dispatched operators, every tensor read and every tensor written once.

    What one operator keeps in a cache for the next is not seen: this is what a device without caches would move, an
    upper limit that tells algorithms apart. Elements that an expanded tensor repeats count once.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view and func.namespace == "aten" and "empty" not in func.name():
            given = tree_leaves((args, kwargs or {}))
            out = [r for r in tree_leaves(result) if not any(r is g for g in given)]
            self.bytes += sum(_bytes(t) for t in [*given, *out] if isinstance(t, torch.Tensor))
        return result


def _bytes(tensor: torch.Tensor) -> int:
    n = tensor.element_size()
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        n *= size if stride else min(size, 1)
    return n
