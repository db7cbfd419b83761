"""Operations of the batch-memory incident: a layer's phases, rotary embedding, a copy, strided shared memory.

For each the inputs that the ruler owns and how much work they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from harness.model import Params

from .arguments import Inputs
from .counting import ITEMSIZE, Span, Work, work
from .params import ParamError, choice, dtype_name, integer, lengths, optional_integer

PHASES = ("prefill", "chunked_prefill", "decode", "train")

#: Lanes of a warp, and the words of shared memory that one block of the strided read uses.
LANES, SHARED_WORDS = 32, 8192


def model_step(params: Params, seed: int, device: str) -> Inputs:
    """x (B, q_len, H), w_qkv ((Hq + 2 Hkv) D, H), w_out (H, Hq D), for ``decode`` a cache (B, 2, Hkv, kv_len, D).

    H is heads_q x head_dim. In the other phases the fourth tensor only tells the shape of a cache.
    """
    from . import inputs

    phase, batch, q_len, kv_len = _phase(params)
    heads_q, heads_kv, dim = (integer(params, n) for n in ("heads_q", "heads_kv", "head_dim"))
    hidden, dtype = heads_q * dim, dtype_name(params)
    made = inputs.Maker(seed, device)
    x = made.normal((batch, q_len, hidden), dtype)
    # Scaled so that results stay of order one, whatever the width.
    w_qkv = made.normal(((heads_q + 2 * heads_kv) * dim, hidden), dtype) / math.sqrt(hidden)
    w_out = made.normal((hidden, hidden), dtype) / math.sqrt(hidden)
    cached = phase == "decode"
    cache = made.normal((batch, 2, heads_kv, kv_len, dim) if cached else (1, 2, heads_kv, 1, dim), dtype)
    tensors = {"x": x, "w_qkv": w_qkv, "w_out": w_out, "cache" if cached else "shape_of_cache": cache}
    return Inputs(tensors, {"phase": phase, "heads_q": heads_q, "chunk": optional_integer(params, "chunk") or q_len})


def model_step_work(params: Params) -> Work:
    """Projections and causal attention; three times that for a training step (forward, and twice for gradients)."""
    phase, batch, q_len, kv_len = _phase(params)
    heads_q, heads_kv, dim = (integer(params, n) for n in ("heads_q", "heads_kv", "head_dim"))
    itemsize, hidden, tokens = ITEMSIZE[dtype_name(params)], heads_q * dim, batch * q_len
    attention = work(
        [Span(q_len, kv_len, causal=True, count=batch)], heads_q=heads_q, heads_kv=heads_kv, head_dim=dim,
        itemsize=itemsize,
    )  # fmt: skip
    projected = 2.0 * tokens * hidden * (2 * hidden + 2 * heads_kv * dim)
    weights = (2 * heads_q + 2 * heads_kv) * dim * hidden * itemsize
    passes = 3 if phase == "train" else 1
    moved = weights + 2 * tokens * hidden * itemsize + attention.bytes
    return Work(attention.pairs, tokens, attention.used_keys, passes * (projected + attention.flops), passes * moved)


def _phase(params: Params) -> tuple[str, int, int, int]:
    phase = choice(params, "phase", PHASES)
    batch, q_len, kv_len = (integer(params, n) for n in ("batch", "q_len", "kv_len"))
    wanted = 1 if phase == "decode" else kv_len
    if q_len != wanted:
        raise ParamError(f"parameter q_len: {q_len}; a {phase} over {kv_len} keys has {wanted}")
    return phase, batch, q_len, kv_len


def rope(params: Params, seed: int, device: str) -> Inputs:
    """x (tokens, heads_q, head_dim), ``lens`` (B,) int32, ``table`` (longest, head_dim) of cosines and sines."""
    import torch

    from . import inputs

    heads, dim, lens = integer(params, "heads_q"), integer(params, "head_dim"), lengths(params, "q_lens")
    if dim % 2 or min(lens) < 1:
        raise ParamError("parameter head_dim or q_lens: rotary embedding needs even head_dim and lengths of at least 1")
    made = inputs.Maker(seed, device)
    x = made.normal((sum(lens), heads, dim), dtype_name(params))
    half = dim // 2
    rates = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(max(lens), dtype=torch.float64)[:, None] * rates
    table = torch.cat([angles.cos(), angles.sin()], 1).float().to(device)
    return Inputs({"x": x}, {"lens": torch.tensor(lens, dtype=torch.int32, device=device), "table": table})


def rope_work(params: Params) -> Work:
    """Six FLOPs for each pair of elements; x and the result once each."""
    tokens = sum(lengths(params, "q_lens"))
    elements = tokens * integer(params, "heads_q") * integer(params, "head_dim")
    return Work(0, tokens, 0, 3.0 * elements, 2 * elements * ITEMSIZE[dtype_name(params)])


def stream(params: Params, seed: int, device: str) -> Inputs:
    """x (rows, columns); a copy has ``rows`` rows of work in flight."""
    from . import inputs

    return Inputs({"x": inputs.Maker(seed, device).normal(_stream_shape(params), dtype_name(params))})


def stream_work(params: Params) -> Work:
    """Every element read once and written once."""
    rows, columns = _stream_shape(params)
    return Work(0, rows, 0, 0.0, 2 * rows * columns * ITEMSIZE[dtype_name(params)])


def _stream_shape(params: Params) -> tuple[int, int]:
    return integer(params, "rows"), integer(params, "columns")


def shared_stride(params: Params, seed: int, device: str) -> Inputs:
    """x (batch, 8192) float32: the words that each block loads into its shared memory."""
    from . import inputs

    options = {"stride": integer(params, "stride", low=0), "turns": integer(params, "turns")}
    return Inputs(
        {"x": inputs.Maker(seed, device).normal((integer(params, "batch"), SHARED_WORDS), "float32")}, options
    )


def shared_stride_work(params: Params) -> Work:
    """One addition a lane and turn; bytes are those read from shared memory."""
    batch, turns = integer(params, "batch"), integer(params, "turns")
    return Work(0, batch, 0, float(batch * turns * LANES), batch * turns * LANES * 4)


def conflicts(_: Callable[[], Any], __: Inputs, params: Params) -> dict[str, float]:
    """The calculator's prediction, which stands beside what was measured."""
    from harness.catalogue.banks import strided_ways

    return {"predicted_bank_turns": float(strided_ways(integer(params, "stride", low=0), LANES))}


def traffic(call: Callable[[], Any], _: Inputs, __: Params) -> dict[str, float]:
    """Bytes that the operators of one call read and write, each operand once; views move nothing."""
    from .traffic import Traffic

    with Traffic() as counted:
        call()
    return {"traffic_bytes": float(counted.bytes)}
