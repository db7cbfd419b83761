"""The kernel variants that ship, as launches that need no device: what is compiled and diffed for each target.

A label names the problem, not the tiles, so that the same label can be compared when a tile size changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..paged import triton_append
from . import backward, forward
from .forward import Layout, Rule
from .launch import Launch
from .targets import PARTS, Facts

HALF, BRAIN, EIGHT = torch.float16, torch.bfloat16, torch.float8_e4m3fn

#: "pull_request" is compiled for every change, "full" at night.
GRIDS = ("pull_request", "full")
HEAD_DIMS = (64, 80, 96, 128, 160, 192, 256)
PAGE_SIZES = (1, 16, 64, 256)


def launches(arch: int, grid: str = "pull_request") -> Iterator[tuple[str, Launch]]:
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


def _all(facts: Facts, full: bool) -> Iterator[tuple[str, Launch]]:
    for head_dim in HEAD_DIMS:
        yield from _dense(facts, head_dim, causal=True)
    yield from _dense(facts, 128, causal=False, dtype=BRAIN)
    yield from _dense(facts, 128, causal=True, group=5, window=512, softcap=30.0, dtype=BRAIN)
    yield from _dense(facts, 192, causal=True, head_v=128)
    yield from _varlen(facts, 128)
    for head_dim in (64, 128, 256):
        yield from _dense(facts, head_dim, causal=True, q_len=1, kv_len=8192, batch=4, group=4)
    for page_size in (1, 16, 256):
        yield from _paged(facts, 128, page_size, q_len=1)
    yield from _paged(facts, 128, 16, q_len=512)
    if facts.arch >= 90:
        yield from _paged(facts, 128, 16, q_len=1, stored=EIGHT)
    yield from _append(facts, 16)
    for head_dim in (64, 128, 192, 256):
        yield from _backward(facts, head_dim, causal=True)
    if full:
        yield from _rest(facts)


def _rest(facts: Facts) -> Iterator[tuple[str, Launch]]:
    for head_dim in HEAD_DIMS:
        for dtype in (HALF, BRAIN):
            for causal in (False, True):
                yield from _dense(facts, head_dim, causal=causal, dtype=dtype)
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
                if facts.arch >= 90:
                    yield from _paged(facts, head_dim, page_size, q_len=q_len, stored=EIGHT)
    yield from _backward(facts, 128, causal=True, window=512, softcap=30.0, group=4)
    yield from _backward(facts, 192, causal=True, head_v=128)


def _meta(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def _int(*shape: int) -> Tensor:
    return _meta(*shape, dtype=torch.int32)


def _rule(causal: bool, window: int | None = None, softcap: float | None = None) -> Rule:
    return Rule(causal, True, window, softcap, 0.125)


def _label(kind: str, dtype: torch.dtype, head_dim: int, head_v: int, **more: Any) -> str:
    parts = [kind, {HALF: "fp16", BRAIN: "bf16"}[dtype], f"d{head_dim}" + (f"/{head_v}" if head_v != head_dim else "")]
    for name, value in more.items():
        if value is True:
            parts.append(name)
        elif value not in (None, False):
            parts.append(f"{name}{value:g}" if isinstance(value, float) else f"{name}{value}")
    return " ".join(parts)


def _dense(
    facts: Facts,
    head_dim: int,
    *,
    causal: bool,
    dtype: torch.dtype = HALF,
    head_v: int | None = None,
    group: int = 1,
    q_len: int = 4096,
    kv_len: int = 4096,
    batch: int = 2,
    window: int | None = None,
    softcap: float | None = None,
) -> Iterator[tuple[str, Launch]]:
    head_v = head_v or head_dim
    q = _meta(batch, 8 * group, q_len, head_dim, dtype=dtype)
    k = _meta(batch, 8, kv_len, head_dim, dtype=dtype)
    v = _meta(batch, 8, kv_len, head_v, dtype=dtype)
    kind = "decode" if q_len < 16 else "prefill"
    label = _label(
        kind, dtype, head_dim, head_v, causal=causal, group=group, q=q_len, window=window, softcap=softcap
    )  # fmt: skip
    plan = forward.plan(q, k, v, _rule(causal, window, softcap), Layout(batch, q_len, kv_len), facts)
    for launch in plan.launches:
        yield label, launch


def _varlen(facts: Facts, head_dim: int) -> Iterator[tuple[str, Launch]]:
    q, k, v = (_meta(8192, 8, head_dim, dtype=HALF) for _ in range(3))
    plan = forward.plan(q, k, v, _rule(True), Layout(4, 4096, 4096, _int(5), _int(5)), facts)
    for launch in plan.launches:
        yield _label("varlen", HALF, head_dim, head_dim, causal=True), launch


def _paged(
    facts: Facts, head_dim: int, page_size: int, *, q_len: int, stored: torch.dtype = HALF
) -> Iterator[tuple[str, Launch]]:
    batch, kv_len = 8, 8192
    q = _meta(batch * q_len, 32, head_dim, dtype=HALF)
    cache = _meta(1024, page_size, 8, head_dim, dtype=stored)
    table = _int(batch, kv_len // page_size)
    layout = Layout(batch, q_len, kv_len, cu_q=_int(batch + 1), table=table, lens=_int(batch), page_size=page_size)
    plan = forward.plan(q, cache, cache, _rule(True), layout, facts)
    kind = "paged_decode" if q_len < 16 else "paged_prefill"
    fp8 = stored is EIGHT
    label = _label(kind, HALF, head_dim, head_dim, causal=True, group=4, q=q_len, page=page_size, fp8=fp8)
    for launch in plan.launches:
        yield label, launch


def _append(facts: Facts, page_size: int) -> Iterator[tuple[str, Launch]]:
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
    yield _label("append", HALF, 128, 128, page=page_size), launch


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
) -> Iterator[tuple[str, Launch]]:
    head_v = head_v or head_dim
    batch, length = 2, 4096
    q = _meta(batch, 8 * group, length, head_dim, dtype=dtype)
    k = _meta(batch, 8, length, head_dim, dtype=dtype)
    v = _meta(batch, 8, length, head_v, dtype=dtype)
    out = _meta(batch, 8 * group, length, head_v, dtype=dtype)
    lse = _meta(batch * length, 8 * group, dtype=torch.float32)
    layout = Layout(batch, length, length)
    plan = backward.plan(q, k, v, out, lse, out, _rule(causal, window, softcap), layout, facts)
    for launch in plan.launches:
        yield (
            _label("backward", dtype, head_dim, head_v, causal=causal, group=group, window=window, softcap=softcap),
            launch,
        )
