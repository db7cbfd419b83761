"""Operations of a batch in memory: decode steps over a pruned cache, under a token mask, and gradients over ranks.

For each the inputs that the ruler owns and how much work they are.
"""

from __future__ import annotations

from harness.model import Params

from .arguments import Inputs
from .counting import ITEMSIZE, Span, Work, work
from .params import ParamError, dtype_name, flag, integer, optional_number


def _sizes(params: Params) -> tuple[int, int, int, int]:
    batch, heads_q, heads_kv = (integer(params, n) for n in ("batch", "heads_q", "heads_kv"))
    return batch, heads_q, heads_kv, integer(params, "head_dim")


def _keep(params: Params) -> float:
    share = optional_number(params, "keep")
    if share is None or not 0 < share <= 1:
        raise ParamError(f"parameter keep: {params.get('keep')!r} is no share above 0 and at most 1")
    return share


def kv_pruning(params: Params, seed: int, device: str) -> Inputs:
    """q (B, Hq, steps, D), k and v (B, Hkv, kv_len, D); ``observed`` (B, Hq, W, D), queries seen before the pruning."""
    from . import inputs

    batch, heads_q, heads_kv, dim = _sizes(params)
    steps, length, seen = (integer(params, n) for n in ("steps", "kv_len", "observed"))
    made, dtype = inputs.Maker(seed, device), dtype_name(params)
    q = made.normal((batch, heads_q, steps, dim), dtype)
    k, v = (made.normal((batch, heads_kv, length, dim), dtype) for _ in range(2))
    observed = made.normal((batch, heads_q, seen, dim), dtype)
    options = {"observed": observed, "keep": _keep(params), "shared": flag(params, "shared")}
    return Inputs({"q": q, "k": k, "v": v}, options)


def kv_pruning_work(params: Params) -> Work:
    """Attention of every step over the keys that are kept."""
    batch, heads_q, heads_kv, dim = _sizes(params)
    kept = max(1, -(-int(_keep(params) * integer(params, "kv_len") * 1e6) // 10**6))
    spans = [Span(1, kept, count=batch * integer(params, "steps"))]
    return work(spans, heads_q=heads_q, heads_kv=heads_kv, head_dim=dim, itemsize=ITEMSIZE[dtype_name(params)])


def token_mask(params: Params, seed: int, device: str) -> Inputs:
    """q (B, H, steps, D), k and v (B, H, kv_len, D); ``seen`` (B, kv_len) bool on the host, a quarter of it False
    where ``hidden`` is true, else none."""
    import torch

    from . import inputs

    batch, heads_q, heads_kv, dim = _sizes(params)
    steps, length = integer(params, "steps"), integer(params, "kv_len")
    if heads_q != heads_kv or steps > length:
        raise ParamError("parameters: needs heads_kv equal to heads_q, and steps of at most kv_len")
    made, dtype = inputs.Maker(seed, device), dtype_name(params)
    q = made.normal((batch, heads_q, steps, dim), dtype)
    k, v = (made.normal((batch, heads_kv, length, dim), dtype) for _ in range(2))
    seen = torch.ones((batch, length), dtype=torch.bool)
    if flag(params, "hidden"):
        seen = torch.rand((batch, length), generator=torch.Generator().manual_seed(seed)) < 0.75
    return Inputs({"q": q, "k": k, "v": v}, {"seen": seen})


def token_mask_work(params: Params) -> Work:
    """Attention of every step over all keys up to its own."""
    batch, heads_q, heads_kv, dim = _sizes(params)
    steps, length = integer(params, "steps"), integer(params, "kv_len")
    spans = [Span(steps, length, causal=True, count=batch)]
    return work(spans, heads_q=heads_q, heads_kv=heads_kv, head_dim=dim, itemsize=ITEMSIZE[dtype_name(params)])


def kv_gradients(params: Params, seed: int, device: str) -> Inputs:
    """q and g (B, Hq, q_len, D), x (B, q_len, hidden_size), w (hidden_size, 2 * Hkv * D); ``ranks`` divides B."""
    from . import inputs

    batch, heads_q, heads_kv, dim = _sizes(params)
    length, hidden, ranks = (integer(params, n) for n in ("q_len", "hidden_size", "ranks"))
    if batch % ranks:
        raise ParamError(f"parameter ranks: batch {batch} does not divide over {ranks}")
    made, dtype = inputs.Maker(seed, device), dtype_name(params)
    q, g = (made.normal((batch, heads_q, length, dim), dtype) for _ in range(2))
    x, w = made.normal((batch, length, hidden), dtype), made.normal((hidden, 2 * heads_kv * dim), dtype)
    return Inputs({"q": q, "x": x, "w": w, "g": g}, {"heads_kv": heads_kv, "ranks": ranks})


def kv_gradients_work(params: Params) -> Work:
    """Attention forward and backward, and the projection: forward once, backward for its weights."""
    batch, heads_q, heads_kv, dim = _sizes(params)
    length, hidden = integer(params, "q_len"), integer(params, "hidden_size")
    itemsize = ITEMSIZE[dtype_name(params)]
    done = work(
        [Span(length, length, count=batch)], heads_q=heads_q, heads_kv=heads_kv, head_dim=dim, itemsize=itemsize,
        backward=True,
    )  # fmt: skip
    width = 2 * heads_kv * dim
    projected = 4.0 * batch * length * hidden * width
    moved = (batch * length * hidden + 2 * hidden * width) * itemsize
    return Work(done.pairs, done.query_tokens, done.used_keys, done.flops + projected, done.bytes + moved)
