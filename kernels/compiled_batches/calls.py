"""Batches of changing size through torch.compile, in the ways that a server may ask for it.

What is looked at is which graphs are made and found again: nodes run eagerly, and no code is generated.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu

#: Graphs of one function before torch gives up compiling it: its own default. Other kernels raise the limit of the
#: process, and what is counted here must not depend on who ran before.
LIMIT = 8

_fresh = itertools.count()


def auto(x: Tensor, w: Tensor, *, batches: Tensor, note: Any) -> Tensor:
    """softmax(gelu(x[:n] w)) for each call's n, one below the other: (sum of batches, H).

    Args:
        x: (longest batch, H). w: (H, H).
        batches: (calls,) int32 on the host.
        note: called with "call" (rows computed), "compiled", "ran" and "done".
    """
    return run(x, w, batches, note, None, exact)


def dynamic(x: Tensor, w: Tensor, *, batches: Tensor, note: Any) -> Tensor:
    """The same with sizes as variables: shapes as in :func:`auto`."""
    return run(x, w, batches, note, True, exact)


def static(x: Tensor, w: Tensor, *, batches: Tensor, note: Any) -> Tensor:
    """The same with a graph for each size, up to ``LIMIT``; beyond it nothing is compiled."""
    return run(x, w, batches, note, False, exact)


def powers(x: Tensor, w: Tensor, *, batches: Tensor, note: Any) -> Tensor:
    """:func:`static` with each batch padded to a power of two."""
    return run(x, w, batches, note, False, lambda n: 1 << (n - 1).bit_length())


def eights(x: Tensor, w: Tensor, *, batches: Tensor, note: Any) -> Tensor:
    """:func:`static` with each batch padded to a multiple of 8."""
    return run(x, w, batches, note, False, lambda n: -(-n // 8) * 8)


def exact(n: int) -> int:
    """No padding."""
    return n


def run(
    x: Tensor, w: Tensor, batches: Tensor, note: Any, is_dynamic: bool | None, bucket: Callable[[int], int]
) -> Tensor:
    """Compile from cold and call with each batch in turn."""

    def backend(module: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        note("compiled")

        def graph(*args: Any) -> Any:
            note("ran")
            return module.forward(*args)

        return graph

    compiled = torch.compile(_unknown(_layer), dynamic=is_dynamic, backend=backend)
    parts = []
    with torch._dynamo.config.patch(recompile_limit=LIMIT):
        for n in batches.tolist():
            rows = bucket(n)
            note("call", float(rows))
            given = x[:n] if rows <= n else torch.nn.functional.pad(x[:n], (0, 0, 0, rows - n))
            parts.append(compiled(given, w)[:n])
            note("done")
    return torch.cat(parts)


def _layer(x: Tensor, w: Tensor) -> Tensor:
    return torch.softmax(gelu(x @ w), -1)


def _unknown(function: types.FunctionType | Callable[..., Any]) -> Callable[..., Any]:
    """A copy that the compiler has never seen: it remembers by name and place which sizes changed."""
    assert isinstance(function, types.FunctionType)
    name = f"{function.__name__}_{next(_fresh)}"
    code = function.__code__.replace(co_name=name, co_qualname=name)
    return types.FunctionType(code, function.__globals__, name)
