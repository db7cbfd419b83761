"""Checks of the public entries, and the one place where a backend's name becomes a function."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .backend import ALIGNMENTS, STORED, Problem, Unavailable, Unsupported
from .registry import get

if TYPE_CHECKING:
    from torch import Tensor


def dispatch(backend: str, operation: str, problem: Problem, device: str) -> Callable[..., Any]:
    """The function of ``backend`` for ``operation``, or an error that says why not. Nothing is replaced."""
    found = get(backend)
    if found.broken is None and (reason := found.unsupported(operation, problem, device)) is not None:
        raise Unsupported(f"backend {backend} on {device}: {reason}")
    available = found.availability(device)
    if not available.usable:
        hint = f"; to get it: {available.remedy}" if available.remedy else ""
        raise Unavailable(f"backend {backend} on {device}: {available.reason}{hint}", available.remedy)
    return found.load(operation)


def check_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal_alignment: str,
    window: int | None,
    softcap: float | None,
    mask: Tensor | None,
) -> dict[str, Any]:
    """Problem of a dense call; ``ValueError`` names the argument that does not fit."""
    import torch

    _dims(4, q=q, k=k, v=v)
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError(f"k is {_shape(k)} and v {_shape(v)}; they must be equal but for the head size")
    if q.shape[0] != k.shape[0]:
        raise ValueError(f"batch of q is {q.shape[0]} and of k {k.shape[0]}")
    if q.shape[3] != k.shape[3]:
        raise ValueError(f"head_dim of q is {q.shape[3]} and of k {k.shape[3]}")
    _heads(q.shape[1], k.shape[1])
    _same(q, k=k, v=v)
    _numbers(window, softcap)
    if causal_alignment not in ALIGNMENTS:
        raise ValueError(f"causal_alignment is one of {', '.join(ALIGNMENTS)}, not {causal_alignment!r}")
    kind = None
    if mask is not None:
        kind = "bool" if mask.dtype == torch.bool else "additive"
        if kind == "additive" and not mask.is_floating_point():
            raise ValueError(f"mask must be bool or floating, not {_dtype(mask)}")
        if mask.device != q.device:
            raise ValueError(f"mask is on {mask.device} and q on {q.device}")
        full = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        wrong = mask.dim() not in (2, 4) or any(
            m not in (1, n) for m, n in zip(reversed(mask.shape), reversed(full), strict=False)
        )
        if wrong:
            raise ValueError(f"mask is {_shape(mask)} and does not broadcast to {full} from 2 or 4 dimensions")
    problem = _problem(q, k, v, k.shape[1])
    return problem | {
        "batch": q.shape[0],
        "q_len": q.shape[2],
        "kv_len": k.shape[2],
        "mask": kind,
        "direction": _direction(q, k, v),
    }


def check_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    window: int | None,
    softcap: float | None,
) -> dict[str, Any]:
    """Problem of a call with sequences end to end. Reads the lengths on the host."""
    _dims(3, q=q, k=k, v=v)
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError(f"k is {_shape(k)} and v {_shape(v)}; they must be equal but for the head size")
    if q.shape[2] != k.shape[2]:
        raise ValueError(f"head_dim of q is {q.shape[2]} and of k {k.shape[2]}")
    _heads(q.shape[1], k.shape[1])
    _same(q, k=k, v=v)
    _numbers(window, softcap)
    q_lens = _cumulative("cu_seqlens_q", cu_seqlens_q, q.shape[0], max_seqlen_q, q)
    kv_lens = _cumulative("cu_seqlens_k", cu_seqlens_k, k.shape[0], max_seqlen_k, q)
    if len(q_lens) != len(kv_lens):
        raise ValueError(f"cu_seqlens_q has {len(q_lens)} sequences and cu_seqlens_k {len(kv_lens)}")
    return _problem(q, k, v, k.shape[1]) | _ragged(q_lens, kv_lens) | {"direction": _direction(q, k, v)}


def check_paged(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    cache_seqlens: Tensor,
    cu_seqlens_q: Tensor,
    max_seqlen_q: int,
    window: int | None,
    softcap: float | None,
) -> dict[str, Any]:
    """Problem of a call over a paged cache. Reads lengths and the used part of the block table on the host."""
    _dims(3, q=q)
    _dims(4, k_cache=k_cache, v_cache=v_cache)
    if k_cache.shape[:-1] != v_cache.shape[:-1]:
        raise ValueError(
            f"k_cache is {_shape(k_cache)} and v_cache {_shape(v_cache)}; they must be equal but for the head size"
        )
    num_blocks, page_size, heads_kv, head_dim = k_cache.shape
    if q.shape[2] != head_dim:
        raise ValueError(f"head_dim of q is {q.shape[2]} and of k_cache {head_dim}")
    _heads(q.shape[1], heads_kv)
    _same(q, k_cache=k_cache, v_cache=v_cache)
    _numbers(window, softcap)
    q_lens = _cumulative("cu_seqlens_q", cu_seqlens_q, q.shape[0], max_seqlen_q, q)
    _int32("cache_seqlens", cache_seqlens, 1, q)
    _int32("block_table", block_table, 2, q)
    sizes: list[int] = cache_seqlens.tolist()
    if len(sizes) != len(q_lens) or block_table.shape[0] != len(q_lens):
        raise ValueError(
            f"cu_seqlens_q has {len(q_lens)} sequences, cache_seqlens {len(sizes)}, block_table {block_table.shape[0]}"
        )
    for n, (size, row) in enumerate(zip(sizes, block_table.tolist(), strict=True)):
        used = row[: -(-size // page_size)] if size > 0 else []
        if size < 0 or size > len(row) * page_size:
            raise ValueError(
                f"cache_seqlens[{n}] is {size}; {len(row)} blocks of {page_size} hold 0 to {len(row) * page_size}"
            )
        if any(not 0 <= block < num_blocks for block in used):
            raise ValueError(f"block_table[{n}] names a block outside 0..{num_blocks - 1}")
    return (
        _problem(q, k_cache, v_cache, heads_kv)
        | _ragged(q_lens, sizes)
        | {"page_size": page_size, "direction": _direction(q, k_cache, v_cache)}
    )


def _problem(q: Tensor, k: Tensor, v: Tensor, heads_kv: int) -> dict[str, Any]:
    problem = {"heads_q": q.shape[1], "heads_kv": heads_kv, "head_dim": q.shape[-1], "dtype": _dtype(q)}
    # Only what is out of the ordinary is named, as in workloads.
    if v.shape[-1] != q.shape[-1]:
        problem["head_dim_v"] = v.shape[-1]
    if k.dtype != q.dtype:
        problem["kv_dtype"] = _dtype(k)
    return problem


def _ragged(q_lens: list[int], kv_lens: list[int]) -> dict[str, Any]:
    return {
        "batch": len(q_lens),
        "q_lens": ",".join(map(str, q_lens)),
        "kv_lens": ",".join(map(str, kv_lens)),
        "q_len": max(q_lens, default=0),
        "kv_len": max(kv_lens, default=0),
    }


def _direction(*tensors: Tensor) -> str:
    import torch

    return "bwd" if torch.is_grad_enabled() and any(t.requires_grad for t in tensors) else "fwd"


def _dims(expected: int, **tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if tensor.dim() != expected:
            raise ValueError(f"{name} must have {expected} dimensions, not shape {_shape(tensor)}")


def _heads(heads_q: int, heads_kv: int) -> None:
    if heads_kv < 1 or heads_q < 1 or heads_q % heads_kv:
        raise ValueError(f"heads_q {heads_q} is not a multiple of heads_kv {heads_kv}")


def _same(q: Tensor, **others: Tensor) -> None:
    if not q.is_floating_point():
        raise ValueError(f"q must be floating, not {_dtype(q)}")
    first, kept = next(iter(others.items()))
    for name, tensor in others.items():
        # Keys and values are alike, and of the dtype of q or of one that they may be stored in.
        if tensor.dtype != kept.dtype:
            raise ValueError(f"{name} is {_dtype(tensor)} and {first} {_dtype(kept)}")
        if tensor.dtype != q.dtype and _dtype(tensor) not in STORED:
            raise ValueError(f"{name} is {_dtype(tensor)} and q {_dtype(q)}")
        if tensor.device != q.device:
            raise ValueError(f"{name} is on {tensor.device} and q on {q.device}")


def _numbers(window: int | None, softcap: float | None) -> None:
    if window is not None and (isinstance(window, bool) or window < 1):
        raise ValueError(f"window must be at least 1, not {window!r}")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap must be above 0, not {softcap!r}")


def _int32(name: str, tensor: Tensor, dims: int, q: Tensor) -> None:
    if _dtype(tensor) != "int32" or tensor.dim() != dims:
        raise ValueError(f"{name} must be int32 with {dims} dimension(s), not {_dtype(tensor)} {_shape(tensor)}")
    if tensor.device != q.device:
        raise ValueError(f"{name} is on {tensor.device} and q on {q.device}")


def _cumulative(name: str, tensor: Tensor, total: int, longest: int, q: Tensor) -> list[int]:
    _int32(name, tensor, 1, q)
    starts: list[int] = tensor.tolist()
    sizes = [b - a for a, b in pairwise(starts)]
    if not starts or starts[0] != 0 or starts[-1] != total or any(size < 0 for size in sizes):
        raise ValueError(f"{name} must rise from 0 to {total}, not {starts[:8]}{'...' if len(starts) > 8 else ''}")
    if max(sizes, default=0) > longest:
        raise ValueError(f"{name} has a sequence of {max(sizes)}, longer than the maximum given, {longest}")
    return sizes


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
