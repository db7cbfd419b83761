"""What a compiler that specialises on shapes does with changing batch sizes: recompiles counted, not guessed.

A call hits when a graph compiled before runs it. Once torch.compile has met its recompile limit it runs the function
eagerly, which is a miss too. Runs in this process and resets the compiler's caches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: Which batch to run for a batch of n: itself, or the bucket it is padded to.
Bucket = Callable[[int], int]


def exact(n: int) -> int:
    """No padding."""
    return n


def power_of_two(n: int) -> int:
    """The next power of two."""
    return 1 << (n - 1).bit_length()


def multiple_of(step: int) -> Bucket:
    """The next multiple of ``step``."""
    return lambda n: -(-n // step) * step


@dataclass(frozen=True)
class Reuse:
    """``compiles`` graphs for ``calls`` calls; ``hit_rate`` of them reused one. ``padding`` is the share of rows added
    over those asked for. ``compile_s``: time of the calls that compiled; ``steady_s``: median of the others."""

    calls: int
    compiles: int
    hit_rate: float
    padding: float
    compile_s: float
    steady_s: float | None


def reuse(
    function: Callable[[Any], Any],
    make: Callable[[int], Any],
    batches: Sequence[int],
    *,
    dynamic: bool | None,
    bucket: Bucket = exact,
    backend: str = "aot_eager",
) -> Reuse:
    """Compile ``function`` and call it with ``make(bucket(n))`` for each n of ``batches``."""
    import torch
    from torch._dynamo.backends.registry import lookup_backend

    compiles = runs = 0
    inner = lookup_backend(backend)

    def counting(module: Any, example_inputs: Any) -> Any:
        nonlocal compiles
        compiles += 1
        compiled = inner(module, example_inputs)

        def run(*args: Any) -> Any:
            nonlocal runs
            runs += 1
            return compiled(*args)

        return run

    torch._dynamo.reset()
    compiled_function = torch.compile(function, dynamic=dynamic, backend=counting)
    inputs = {n: make(bucket(n)) for n in dict.fromkeys(batches)}
    hits, compile_s, steady = 0, 0.0, []
    with torch.no_grad():
        for n in batches:
            compiles_before, runs_before = compiles, runs
            start = time.perf_counter()
            compiled_function(inputs[n])
            seconds = time.perf_counter() - start
            if compiles > compiles_before:
                compile_s += seconds
            else:
                steady.append(seconds)
                hits += runs > runs_before
    torch._dynamo.reset()
    rows = sum(bucket(n) for n in batches)
    return Reuse(
        len(batches), compiles, hits / len(batches), rows / sum(batches) - 1.0, compile_s,
        statistics.median(steady) if steady else None,
    )  # fmt: skip
