"""One decode step of a server, with the three faults of the latency incident to switch on: real kernels throughout."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from kernels.kv_cache import steps
from kernels.layer_norm import variants

from . import decode_boundary

FAULTS = ("A1", "A2", "A3")


def step_with(
    faults: frozenset[str], *, capacity: int = 1024, max_batch: int = 8, heads_q: int = 8, heads_kv: int = 2,
    head_dim: int = 64, layers: int = 1, dtype: torch.dtype = torch.float32, seed: int = 0,
) -> Callable[[Sequence[int]], None]:  # fmt: skip
    """A step over requests with the given numbers of valid keys (at most ``capacity``).

    Per layer a layer norm in half precision, and attention. ``A1`` walks the whole capacity; ``A2`` is layer norm in
    float16 throughout with ``nan_to_num`` behind it; ``A3`` the slow boundary path. Under ``A1`` the walked length is
    the capacity, a multiple of 128, where ``A3`` cannot show.
    """
    if capacity % 128:
        raise ValueError(f"capacity is {capacity} and must be a multiple of 128")
    generator = torch.Generator().manual_seed(seed)
    hidden = heads_q * head_dim
    q = torch.randn((max_batch, layers, heads_q, head_dim), generator=generator).to(dtype)
    cache = torch.randn((max_batch, layers, 2, heads_kv, capacity, head_dim), generator=generator).to(dtype)
    x = torch.randn((max_batch, hidden), generator=generator).half()
    weight, bias = (torch.randn((hidden,), generator=generator).half() for _ in range(2))
    norm = variants.narrow_guarded if "A2" in faults else variants.fp32

    def step(valid: Sequence[int]) -> None:
        with torch.no_grad():
            lens = torch.tensor(valid, dtype=torch.int32)
            for layer in range(layers):
                norm(x[: len(valid)], weight, bias, eps=1e-5)
                one = slice(layer, layer + 1)
                if "A1" in faults:
                    steps.fixed(q[: len(valid), one], cache[: len(valid), one], kv_lens=lens)
                elif "A3" in faults:
                    for b, n in enumerate(valid):
                        k, v = cache[b, layer, :, :, :n].unbind(0)
                        decode_boundary.slow(q[b, layer][None, :, None], k[None], v[None], causal=True)
                else:
                    steps.trimmed(q[: len(valid), one], cache[: len(valid), one], kv_lens=lens)

    return step
