"""The operations that can be measured. One line in ``_OPERATIONS`` adds one.

An operation makes the inputs that the ruler owns and says how much work they are. Which function runs on them
is the backend's business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from harness.model import Params, Value, Workload, canonical_json, content_key

from . import layers, plain, servers, steps
from .arguments import Inputs as Inputs
from .counting import ITEMSIZE, STORED_ITEMSIZE, Span, Work, work
from .masks import MASKS, allowed_by
from .params import ParamError, choice, dtype_name, flag, integer, lengths, optional_integer, optional_number

ALIGNMENTS = ("bottom_right", "top_left")
DIRECTIONS = ("fwd", "bwd")
LAYOUTS = ("bhsd", "bshd", "expanded_kv")

#: Parameters that change nothing about the inputs.
_NO_SHAPES = ("direction", "env", "memory_limit_bytes")


@dataclass(frozen=True)
class Operation:
    """``make`` builds inputs from (params, seed, device); ``counted`` says how much work they are.

    Both raise :class:`harness.measuring.params.ParamError` for parameters that cannot be used. ``head_axes`` says
    which axis of each positional tensor counts heads, one entry per tensor; None where there are no heads to take the
    first of. ``flips``: the second question of the gate flips the sign of every n-th element of each of these tensors.
    ``observe`` runs the call once more, outside all timing, for metrics that only this operation has.
    """

    name: str
    make: Callable[[Params, int, str], Inputs]
    counted: Callable[[Params], Work]
    head_axes: tuple[int, ...] | None = (1, 1, 1)
    flips: tuple[int, ...] = (1, 2, 1)
    observe: Callable[[Callable[[], Any], Inputs, Params], Mapping[str, float | Value]] | None = None

    def work(self, params: Params) -> Work:
        """Exact work of the pass that ``direction`` names. Counted once per workload: masks are counted bit by
        bit."""
        return _work(self, canonical_json(dict(params)))

    def inputs(self, params: Params, seed: int, device: str) -> Inputs:
        """Inputs that depend on workload and seed only, not on backend, device or what ran before."""
        if "heads_q" in params:
            heads_q, heads_kv = integer(params, "heads_q"), integer(params, "heads_kv")
            if heads_q % heads_kv:
                raise ParamError(f"parameter heads_q: {heads_q} is no multiple of heads_kv {heads_kv}")
        shapes = {k: v for k, v in params.items() if k not in _NO_SHAPES}
        return self.make(params, int(content_key(self.name, shapes, seed)[:12], 16), device)


@lru_cache(maxsize=256)
def _work(operation: Operation, text: str) -> Work:
    params: Params = json.loads(text)
    return operation.counted(params)


def spanned(spans: Callable[[Params], list[Span]]) -> Callable[[Params], Work]:
    """Counting for an operation whose work is attention over the sequences that ``spans`` lists."""

    def counted(params: Params) -> Work:
        return work(
            spans(params),
            heads_q=integer(params, "heads_q"),
            heads_kv=integer(params, "heads_kv"),
            head_dim=integer(params, "head_dim"),
            itemsize=ITEMSIZE[dtype_name(params)],
            backward=is_backward(params),
            head_dim_v=_values(params)[0],
            stored_itemsize=STORED_ITEMSIZE[_values(params)[1]],
        )

    return counted


def _values(params: Params) -> tuple[int, str]:
    """(head size of the values, dtype of the keys and values): those of the queries where nothing else is said."""
    head_dim = optional_integer(params, "head_dim_v")
    return (
        integer(params, "head_dim") if head_dim is None else head_dim,
        choice(params, "kv_dtype", tuple(STORED_ITEMSIZE), dtype_name(params)),
    )


def is_backward(params: Params) -> bool:
    """Whether the pass measured is the backward one; absent means forward."""
    return choice(params, "direction", DIRECTIONS, "fwd") == "bwd"


def operation_of(workload: Workload) -> Operation:
    """The registered operation, or :class:`ParamError` that lists what there is."""
    found = OPERATIONS.get(workload.operation)
    if found is None:
        raise ParamError(f"operation {workload.operation!r} is none of {', '.join(OPERATIONS)}")
    return found


def _attention_spans(params: Params) -> list[Span]:
    batch, q_len, kv_len = (integer(params, n) for n in ("batch", "q_len", "kv_len"))
    kind = choice(params, "mask", MASKS, "none")
    common = {
        "causal": flag(params, "causal"),
        "causal_alignment": choice(params, "causal_alignment", ALIGNMENTS, "bottom_right"),
        "window": optional_integer(params, "window"),
    }
    mask = allowed_by(kind, batch, q_len, kv_len)
    if mask is None:
        return [Span(q_len, kv_len, count=batch, **common)]  # type: ignore[arg-type]
    copies = batch if mask.shape[0] == 1 else 1
    return [Span(q_len, kv_len, count=copies, mask=m, **common) for m in mask]  # type: ignore[arg-type]


def _ragged_spans(params: Params) -> list[Span]:
    causal, window = flag(params, "causal"), optional_integer(params, "window")
    pairs = zip(lengths(params, "q_lens"), lengths(params, "kv_lens"), strict=True)
    return [Span(q, k, causal=causal, window=window) for q, k in pairs]


def _common_options(params: Params) -> dict[str, Any]:
    """Keywords that every operation knows; optional ones only where the workload sets them."""
    options: dict[str, Any] = {"causal": flag(params, "causal")}
    if (window := optional_integer(params, "window")) is not None:
        options["window"] = window
    for name in ("softcap", "scale"):
        if (number := optional_number(params, name)) is not None:
            options[name] = number
    return options


def _attention(params: Params, seed: int, device: str) -> Inputs:
    from . import inputs

    batch, heads_q, heads_kv = (integer(params, n) for n in ("batch", "heads_q", "heads_kv"))
    q_len, kv_len, dim = (integer(params, n) for n in ("q_len", "kv_len", "head_dim"))
    layout = choice(params, "layout", LAYOUTS, "bhsd")
    dtype = dtype_name(params)
    made = inputs.Maker(seed, device)
    q = made.heads(batch, heads_q, q_len, dim, dtype, layout)
    dim_v, stored = _values(params)
    k = made.heads(batch, heads_kv, kv_len, dim, stored, layout, shared=layout == "expanded_kv")
    v = made.heads(batch, heads_kv, kv_len, dim_v, stored, layout, shared=layout == "expanded_kv")
    options = _common_options(params)
    if params.get("causal_alignment") is not None:
        options["causal_alignment"] = choice(params, "causal_alignment", ALIGNMENTS)
    kind = choice(params, "mask", MASKS, "none")
    if kind != "none":
        options["mask"] = made.mask(kind, batch, q_len, kv_len, dtype)
    return Inputs({"q": q, "k": k, "v": v}, options)


def _varlen(params: Params, seed: int, device: str) -> Inputs:
    from . import inputs

    heads_q, heads_kv, dim = (integer(params, n) for n in ("heads_q", "heads_kv", "head_dim"))
    q_lens, kv_lens, dtype = lengths(params, "q_lens"), lengths(params, "kv_lens"), dtype_name(params)
    dim_v, stored = _values(params)
    made = inputs.Maker(seed, device)
    tensors = {
        "q": made.normal((sum(q_lens), heads_q, dim), dtype),
        "k": made.normal((sum(kv_lens), heads_kv, dim), stored),
        "v": made.normal((sum(kv_lens), heads_kv, dim_v), stored),
    }
    options = _common_options(params) | {
        "cu_seqlens_q": made.offsets(q_lens),
        "cu_seqlens_k": made.offsets(kv_lens),
        "max_seqlen_q": max(q_lens),
        "max_seqlen_k": max(kv_lens),
    }
    return Inputs(tensors, options)


def _paged(params: Params, seed: int, device: str) -> Inputs:
    from . import inputs

    heads_q, heads_kv, dim = (integer(params, n) for n in ("heads_q", "heads_kv", "head_dim"))
    q_lens, kv_lens, dtype = lengths(params, "q_lens"), lengths(params, "kv_lens"), dtype_name(params)
    if any(q > k for q, k in zip(q_lens, kv_lens, strict=True)):
        raise ParamError("parameter kv_lens: counts the new keys too, so none may be less than its q_lens")
    made = inputs.Maker(seed, device)
    q = made.normal((sum(q_lens), heads_q, dim), dtype)
    dim_v, stored = _values(params)
    pool = made.paged_cache(kv_lens, integer(params, "page_size"), heads_kv, (dim, dim_v), stored)
    options = _common_options(params) | {
        "block_table": pool.block_table,
        "cache_seqlens": pool.cache_seqlens,
        "cu_seqlens_q": made.offsets(q_lens),
        "max_seqlen_q": max(q_lens),
    }
    return Inputs({"q": q, "k_cache": pool.k, "v_cache": pool.v}, options)


_OPERATIONS = (
    Operation("attention", _attention, spanned(_attention_spans)),
    Operation("varlen_attention", _varlen, spanned(_ragged_spans)),
    Operation("paged_attention", _paged, spanned(_ragged_spans), head_axes=(1, 2, 2)),
    Operation(
        "kv_cache", plain.kv_cache, spanned(plain.kv_cache_spans), head_axes=None, flips=(1, 2),
        observe=plain.wasted_work,
    ),
    Operation("layer_norm", plain.layer_norm, plain.layer_norm_work, head_axes=None),
    Operation("softmax", plain.softmax, plain.softmax_work, head_axes=None, flips=(2,)),
    Operation("gemm", plain.gemm, plain.gemm_work, head_axes=None, flips=(1, 2)),
    Operation("kv_gradients", steps.kv_gradients, steps.kv_gradients_work, head_axes=None, flips=(1, 2, 1, 1)),
    Operation("token_mask", steps.token_mask, steps.token_mask_work, head_axes=None),
    Operation("kv_pruning", steps.kv_pruning, steps.kv_pruning_work, head_axes=None),
    Operation("model_step", layers.model_step, layers.model_step_work, head_axes=None, flips=(1, 2, 1, 2)),
    Operation("rope", layers.rope, layers.rope_work, head_axes=None, flips=(1,), observe=layers.traffic),
    Operation("stream", layers.stream, layers.stream_work, head_axes=None, flips=(1,)),
    Operation(
        "shared_stride", layers.shared_stride, layers.shared_stride_work, head_axes=None, flips=(1,),
        observe=layers.conflicts,
    ),
    Operation(
        "serving", servers.serving, servers.serving_work, head_axes=None, flips=(1, 2, 1, 2),
        observe=servers.serving_seen,
    ),
    Operation(
        "compiled_batches", servers.compiled_batches, servers.compiled_batches_work, head_axes=None, flips=(1, 2),
        observe=servers.compiled_batches_seen,
    ),
    Operation(
        "block_pool", servers.block_pool, servers.block_pool_work, head_axes=None, flips=(1,),
        observe=servers.block_pool_seen,
    ),
)  # fmt: skip

OPERATIONS: dict[str, Operation] = {o.name: o for o in _OPERATIONS}
