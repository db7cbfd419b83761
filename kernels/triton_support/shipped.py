"""The kernel variants that ship, as launches that need no device: what is compiled and diffed for each target.

A label names the problem, not the tiles, so that the same label can be compared when a tile size changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..paged import triton_append
from . import backward, forward
from .forward import Layout, Rule
from .launch import Launch
from .targets import EIGHT_SINCE, PARTS, Facts

HALF, BRAIN, EIGHT = torch.float16, torch.bfloat16, torch.float8_e4m3fn

Variants = Iterator[tuple[str, Launch]]

#: "pull_request" is compiled for every change, "full" at night.
GRIDS = ("pull_request", "full")
HEAD_DIMS = (64, 80, 96, 128, 160, 192, 256)
PAGE_SIZES = (1, 16, 64, 256)


def launches(arch: int, grid: str = "pull_request") -> Variants:
    """(label, launch) of every shipped variant for a part of that architecture (80, 90, 100).

    ``ValueError`` for another architecture or grid.
    """
    if arch not in PARTS or grid not in GRIDS:
        raise ValueError(f"no variants for arch {arch} and grid {grid!r}; known: {sorted(PARTS)}, {', '.join(GRIDS)}")
    facts, seen = PARTS[arch], set[str]()
    for label, launch in _all(facts, grid == "full"):
        full = f"{launch.name} {label}"
        if full not in seen:
            seen.add(full)
            yield full, launch


def _all(facts: Facts, full: bool) -> Variants:
    # Every tile that ships serves several of these, so that a changed one can be told by what they share.
    for head_dim, dtype, causal, group in itertools.product(HEAD_DIMS, (HALF, BRAIN), (True, False), (1, 4)):
        yield from _dense(facts, head_dim, causal=causal, dtype=dtype, group=group)
    yield from _dense(facts, 128, causal=True, group=5, window=512, softcap=30.0, dtype=BRAIN)
    yield from _varlen(facts, 128)
    for head_dim in (64, 128, 256):
        yield from _dense(facts, head_dim, causal=True, q_len=1, kv_len=8192, batch=4, group=4)
    for page_size in (1, 16, 256):
        yield from _paged(facts, 128, page_size, q_len=1)
    yield from _paged(facts, 128, 16, q_len=512)
    yield from _append(facts, 16)
    for head_dim in (64, 128, 192, 256):
        yield from _backward(facts, head_dim, causal=True)
    for dtype in (HALF, BRAIN):
        yield from _latent(facts, dtype, 16)
    if facts.arch >= EIGHT_SINCE:
        yield from _eight(facts, 128, 16)
    if full:
        yield from _rest(facts)


def _latent(facts: Facts, dtype: torch.dtype, page_size: int, stored: torch.dtype | None = None) -> Variants:
    """Heads of latent attention: keys of 192 numbers, values of 128."""
    given: dict[str, Any] = {"dtype": dtype, "stored": stored, "head_v": 128}
    for causal in (True, False):
        yield from _dense(facts, 192, causal=causal, **given)
    yield from _dense(facts, 192, causal=True, q_len=1, kv_len=8192, batch=4, group=4, **given)
    for q_len in (1, 512):
        yield from _paged(facts, 192, page_size, q_len=q_len, **given)


def _eight(facts: Facts, head_dim: int, page_size: int) -> Variants:
    """Keys and values of 8 bits."""
    yield from _dense(facts, head_dim, causal=True, stored=EIGHT)
    yield from _dense(facts, head_dim, causal=True, stored=EIGHT, q_len=1, kv_len=8192, batch=4, group=4)
    for q_len in (1, 512):
        yield from _paged(facts, head_dim, page_size, q_len=q_len, stored=EIGHT)


def _rest(facts: Facts) -> Variants:
    for head_dim in HEAD_DIMS:
        for dtype, causal in itertools.product((HALF, BRAIN), (False, True)):
            yield from _backward(facts, head_dim, causal=causal, dtype=dtype)
        yield from _dense(facts, head_dim, causal=True, window=512)
        yield from _dense(facts, head_dim, causal=True, softcap=30.0)
        yield from _dense(facts, head_dim, causal=True, group=5, window=512, softcap=30.0)
        yield from _dense(facts, head_dim, causal=True, q_len=1, kv_len=8192, batch=4, group=4)
        yield from _dense(facts, head_dim, causal=True, q_len=4, kv_len=8192, batch=4, group=8)
        yield from _varlen(facts, head_dim)
        for page_size in PAGE_SIZES:
            for q_len in (1, 4, 512):
                yield from _paged(facts, head_dim, page_size, q_len=q_len)
                if facts.arch >= EIGHT_SINCE:
                    yield from _paged(facts, head_dim, page_size, q_len=q_len, stored=EIGHT)
        if facts.arch >= EIGHT_SINCE:
            yield from _eight(facts, head_dim, 16)
    for page_size in PAGE_SIZES:
        yield from _latent(facts, HALF, page_size)
        if facts.arch >= EIGHT_SINCE:
            yield from _latent(facts, HALF, page_size, EIGHT)
    yield from _backward(facts, 128, causal=True, window=512, softcap=30.0, group=4)
    yield from _backward(facts, 192, causal=True, head_v=128)


def _meta(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def _int(*shape: int) -> Tensor:
    return _meta(*shape, dtype=torch.int32)


def _rule(causal: bool, window: int | None = None, softcap: float | None = None) -> Rule:
    return Rule(causal, True, window, softcap, 0.125)


def _named(launches: Iterable[Launch], kind: str, problem: Mapping[str, Any]) -> Variants:
    """The launches, each with its label and its problem; what is None is no part of a problem."""
    held = {k: v for k, v in problem.items() if v is not None}
    group = held["heads_q"] // held["heads_kv"]
    head, head_v = held["head_dim"], held.get("head_dim_v", held["head_dim"])
    parts = [kind, _SHORT[held["dtype"]], f"d{head}" + (f"/{head_v}" if head_v != head else "")]
    parts += ["causal"] if held.get("causal") else []
    parts += [f"group{group}"] if kind not in ("varlen", "append") else []
    parts += [f"q{held['q_len']}"] if kind not in ("varlen", "append", "backward") else []
    parts += [f"{name}{held[key]:g}" for name, key in _MORE if key in held]
    parts += ["fp8"] if "kv_dtype" in held else []
    for launch in launches:
        yield " ".join(parts), replace(launch, problem=held)


_SHORT = {"float16": "fp16", "bfloat16": "bf16"}
_MORE = (("window", "window"), ("softcap", "softcap"), ("page", "page_size"))


def _text(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _stored(dtype: torch.dtype, stored: torch.dtype | None) -> str | None:
    return None if stored is None or stored is dtype else _text(stored)


def _dense(
    facts: Facts,
    head_dim: int,
    *,
    causal: bool,
    dtype: torch.dtype = HALF,
    stored: torch.dtype | None = None,
    head_v: int | None = None,
    group: int = 1,
    q_len: int = 4096,
    kv_len: int = 4096,
    batch: int = 2,
    window: int | None = None,
    softcap: float | None = None,
) -> Variants:
    q = _meta(batch, 8 * group, q_len, head_dim, dtype=dtype)
    k = _meta(batch, 8, kv_len, head_dim, dtype=stored or dtype)
    v = _meta(batch, 8, kv_len, head_v or head_dim, dtype=stored or dtype)
    plan = forward.plan(q, k, v, _rule(causal, window, softcap), Layout(batch, q_len, kv_len), facts)
    problem = {
        "backend": "segmented_triton", "operation": "attention", "batch": batch, "heads_q": 8 * group, "heads_kv": 8,
        "q_len": q_len, "kv_len": kv_len, "head_dim": head_dim, "head_dim_v": head_v, "dtype": _text(dtype),
        "kv_dtype": _stored(dtype, stored), "causal": causal, "direction": "fwd", "window": window, "softcap": softcap,
    }  # fmt: skip
    yield from _named(plan.launches, "decode" if q_len < 16 else "prefill", problem)


def _varlen(facts: Facts, head_dim: int) -> Variants:
    q, k, v = (_meta(8192, 8, head_dim, dtype=HALF) for _ in range(3))
    plan = forward.plan(q, k, v, _rule(True), Layout(4, 4096, 4096, _int(5), _int(5)), facts)
    problem = {
        "backend": "segmented_triton", "operation": "varlen_attention", "batch": 4, "heads_q": 8, "heads_kv": 8,
        "q_len": 4096, "kv_len": 4096, "head_dim": head_dim, "dtype": "float16", "causal": True, "direction": "fwd",
    }  # fmt: skip
    yield from _named(plan.launches, "varlen", problem)


def _paged(
    facts: Facts,
    head_dim: int,
    page_size: int,
    *,
    q_len: int,
    dtype: torch.dtype = HALF,
    stored: torch.dtype | None = None,
    head_v: int | None = None,
) -> Variants:
    batch, kv_len = 8, 8192
    q = _meta(batch * q_len, 32, head_dim, dtype=dtype)
    k, v = (_meta(1024, page_size, 8, d, dtype=stored or dtype) for d in (head_dim, head_v or head_dim))
    table = _int(batch, kv_len // page_size)
    layout = Layout(batch, q_len, kv_len, cu_q=_int(batch + 1), table=table, lens=_int(batch), page_size=page_size)
    plan = forward.plan(q, k, v, _rule(True), layout, facts)
    problem = {
        "backend": "paged_triton", "operation": "paged_attention", "batch": batch, "heads_q": 32, "heads_kv": 8,
        "q_len": q_len, "kv_len": kv_len, "head_dim": head_dim, "head_dim_v": head_v, "dtype": _text(dtype),
        "kv_dtype": _stored(dtype, stored), "causal": True, "direction": "fwd", "page_size": page_size,
    }  # fmt: skip
    yield from _named(plan.launches, "paged_decode" if q_len < 16 else "paged_prefill", problem)


def _append(facts: Facts, page_size: int) -> Variants:
    new = _meta(64, 8, 128, dtype=HALF)
    cache = _meta(1024, page_size, 8, 128, dtype=HALF)
    launch = triton_append.plan(
        new,
        new,
        cache,
        cache,
        block_table=_int(64, 64),
        cache_seqlens=_int(64),
        cu_seqlens_new=_int(65),
        max_seqlen_new=1,
    )
    problem = {
        "backend": "paged_triton", "operation": "paged_append", "batch": 64, "heads_q": 8, "heads_kv": 8, "q_len": 1,
        "head_dim": 128, "dtype": "float16", "page_size": page_size,
    }  # fmt: skip
    yield from _named([launch], "append", problem)


def _backward(
    facts: Facts,
    head_dim: int,
    *,
    causal: bool,
    dtype: torch.dtype = HALF,
    head_v: int | None = None,
    group: int = 1,
    window: int | None = None,
    softcap: float | None = None,
) -> Variants:
    batch, length = 2, 4096
    q = _meta(batch, 8 * group, length, head_dim, dtype=dtype)
    k = _meta(batch, 8, length, head_dim, dtype=dtype)
    v = _meta(batch, 8, length, head_v or head_dim, dtype=dtype)
    out = _meta(batch, 8 * group, length, head_v or head_dim, dtype=dtype)
    lse = _meta(batch * length, 8 * group, dtype=torch.float32)
    layout = Layout(batch, length, length)
    plan = backward.plan(q, k, v, out, lse, out, _rule(causal, window, softcap), layout, facts)
    problem = {
        "backend": "segmented_triton", "operation": "attention", "batch": batch, "heads_q": 8 * group, "heads_kv": 8,
        "q_len": length, "kv_len": length, "head_dim": head_dim, "head_dim_v": head_v, "dtype": _text(dtype),
        "causal": causal, "direction": "bwd", "window": window, "softcap": softcap,
    }  # fmt: skip
    yield from _named(plan.launches, "backward", problem)
