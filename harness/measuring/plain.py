"""Operations beside attention: a step over a cache with a capacity, layer norm, softmax, matrix product.

For each the inputs that the ruler owns and how much work they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from harness.model import Params

from .arguments import Inputs
from .counting import ITEMSIZE, Span, Work
from .params import ParamError, dtype_name, integer, lengths, optional_number


def kv_cache_spans(params: Params) -> list[Span]:
    """One new token per request and layer against the request's valid keys."""
    return [Span(1, n, count=integer(params, "layers")) for n in lengths(params, "kv_lens")]


def kv_cache(params: Params, seed: int, device: str) -> Inputs:
    """q (B, layers, Hq, D), cache (B, layers, 2, Hkv, capacity, D), ``kv_lens`` (B,) int32.

    What lies past a request's length is a finite leftover of an earlier request, as in a server's memory.
    """
    import torch

    from . import inputs

    layers, capacity = integer(params, "layers"), integer(params, "capacity")
    heads_q, heads_kv, dim = (integer(params, n) for n in ("heads_q", "heads_kv", "head_dim"))
    valid, dtype = lengths(params, "kv_lens"), dtype_name(params)
    if max(valid) > capacity or min(valid) < 1:
        raise ParamError(f"parameter kv_lens: each must lie between 1 and capacity, which is {capacity}")
    made = inputs.Maker(seed, device)
    q = made.normal((len(valid), layers, heads_q, dim), dtype)
    cache = made.normal((len(valid), layers, 2, heads_kv, capacity, dim), dtype)
    return Inputs({"q": q, "cache": cache}, {"kv_lens": torch.tensor(valid, dtype=torch.int32, device=device)})


def wasted_work(call: Callable[[], Any], _: Inputs, params: Params) -> dict[str, float]:
    """FLOPs that the call dispatches over those needed."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        call()
    keys = sum(lengths(params, "kv_lens")) * integer(params, "layers")
    needed = 4.0 * integer(params, "heads_q") * integer(params, "head_dim") * keys
    return {"wasted_work_ratio": counter.get_total_flops() / needed}


def _number(params: Params, name: str) -> float:
    found = optional_number(params, name)
    if found is None or not math.isfinite(found):
        raise ParamError(f"parameter {name}: {params.get(name)!r} is no finite number")
    return found


def layer_norm(params: Params, seed: int, device: str) -> Inputs:
    """x (rows, hidden_size) with mean ``amplitude`` and variance ``variance`` in each row; weight, bias; ``eps``.

    A variance of 0 makes constant rows.
    """
    import torch

    from . import inputs

    rows, hidden = integer(params, "rows"), integer(params, "hidden_size")
    dtype, variance = dtype_name(params), _number(params, "variance")
    if variance < 0:
        raise ParamError(f"parameter variance: {variance!r} is negative")
    made = inputs.Maker(seed, device)
    wide = made.normal((rows, hidden), "float32") * math.sqrt(variance) + _number(params, "amplitude")
    x = wide.to(getattr(torch, dtype))
    if not bool(torch.isfinite(x).all()):
        raise ParamError(f"parameter amplitude: values around {params['amplitude']} do not fit into {dtype}")
    weight, bias = (made.normal((hidden,), dtype) for _ in range(2))
    return Inputs({"x": x, "weight": weight, "bias": bias}, {"eps": _number(params, "eps")})


def layer_norm_work(params: Params) -> Work:
    """Two passes for mean and variance, one for the result: 8 FLOPs an element; x and the result once each."""
    rows, hidden = integer(params, "rows"), integer(params, "hidden_size")
    return Work(0, rows, 0, 8.0 * rows * hidden, (2 * rows + 2) * hidden * ITEMSIZE[dtype_name(params)])


def softmax(params: Params, seed: int, device: str) -> Inputs:
    """x (rows, columns), normal with standard deviation ``spread``; ``block`` columns are seen at a time."""
    import torch

    from . import inputs

    rows, columns = integer(params, "rows"), integer(params, "columns")
    made = inputs.Maker(seed, device)
    wide = made.normal((rows, columns), "float32") * _number(params, "spread")
    options = {"block": integer(params, "block"), "clip": optional_number(params, "clip")}
    return Inputs({"x": wide.to(getattr(torch, dtype_name(params)))}, options)


def softmax_work(params: Params) -> Work:
    """Maximum, exponential, sum and division: 4 FLOPs an element; x and the result once each."""
    rows, columns = integer(params, "rows"), integer(params, "columns")
    return Work(0, rows, 0, 4.0 * rows * columns, 2 * rows * columns * ITEMSIZE[dtype_name(params)])


def gemm(params: Params, seed: int, device: str) -> Inputs:
    """a (m, k) and b (k, n), row-major with ``lda`` and ``ldb`` elements from row to row ."""
    from . import inputs

    m, n, k = (integer(params, name) for name in ("m", "n", "k"))
    lda, ldb = integer(params, "lda", low=k), integer(params, "ldb", low=n)
    made, dtype = inputs.Maker(seed, device), dtype_name(params)
    return Inputs({"a": made.normal((m, lda), dtype)[:, :k], "b": made.normal((k, ldb), dtype)[:, :n]})


def gemm_work(params: Params) -> Work:
    """2 m n k FLOPs; each matrix once."""
    m, n, k = (integer(params, name) for name in ("m", "n", "k"))
    return Work(0, m, 0, 2.0 * m * n * k, (m * k + k * n + m * n) * ITEMSIZE[dtype_name(params)])
