"""What the interpreter tests run in their child process: build inputs, run a kernel, judge it by the oracle."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kernels.attention import reference
from kernels.paged import reference as paged_reference
from kernels.paged import triton_append
from kernels.paged import triton_attention as paged
from kernels.segmented import triton_attention as segmented
from kernels.segmented.triton_attention import Tuning
from kernels.triton_support import targets
from kernels.triton_support.tiles import Config

from . import test_paged, test_varlen
from .helpers import DTYPES, check_backward, check_forward, cumulative, excess, normal, qkv, ragged

#: Small tiles, so that short sequences still take several.
SMALL = Config(32, 16, 4, 2)
SMALL_BACKWARD = (Config(16, 32, 4, 1), Config(32, 16, 4, 1))


def tuning(splits: int | None = None, config: Config | None = SMALL) -> Tuning:
    return Tuning(config, splits, None if config is None else SMALL_BACKWARD)


def inputs(
    kind: str, q_len: int, kv_len: int, heads: tuple[int, int], head_dim: int, dtype: str
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of a batch of 2. ``large``: logits of hundreds; ``one_hot``: each query sees one key alone."""
    q, k, v = qkv(2, *heads, q_len, kv_len, head_dim, DTYPES[dtype])
    if kind == "large":
        return q * 20, k * 4, v
    if kind == "one_hot" and kv_len:
        picked = k[:, :, torch.arange(q_len) * 7 % kv_len]
        return picked.repeat_interleave(heads[0] // heads[1], dim=1) * 8, k, v
    if kind == "expanded":
        return q, k[:, :, :1].expand_as(k), v[:, :1].expand_as(v)
    if kind == "bshd":
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    if kind == "strided":
        q, k, v = (torch.stack((x, x.neg()), dim=-1)[..., 0] for x in (q, k, v))
    return q, k, v


def dense(
    q_len: int,
    kv_len: int,
    *,
    heads: tuple[int, int] = (2, 2),
    head_dim: int = 64,
    dtype: str = "float16",
    kind: str = "normal",
    splits: int | None = None,
    config: Config | None = SMALL,
    backward: bool = False,
    arch: int | None = None,
    rows_first: bool = False,
    head_v: int | None = None,
    stored: str | None = None,
    **rule: Any,
) -> None:
    tensors = shorter(inputs(kind, q_len, kv_len, heads, head_dim, dtype), head_v)
    if arch is not None:
        targets.facts_of, saved = lambda _: targets.Facts(arch, 4, 1 << 20, 227 << 10, f"as {arch}"), targets.facts_of
        segmented.facts_of = targets.facts_of
    try:
        chosen = tuning(splits, config)
        if rows_first:
            chosen = replace(chosen, backward=(replace(SMALL_BACKWARD[0], rows_first=True), SMALL_BACKWARD[1]))
        judge(with_tuning(segmented.attention, chosen), reference.attention, tensors, rule, stored, backward)
    finally:
        if arch is not None:
            targets.facts_of = segmented.facts_of = saved


def shorter(tensors: tuple[Tensor, Tensor, Tensor], head_v: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """The same with values of another head size."""
    q, k, v = tensors
    return q, k, v if head_v is None else v[..., :head_v].contiguous()


def judge(
    run: Any, oracle: Any, tensors: tuple[Tensor, ...], options: dict[str, Any], stored: str | None, backward: bool
) -> None:
    """By the oracle, which is given the numbers that were stored, scales applied."""
    if backward:
        check_backward(run, oracle, tensors, options)
        return
    if stored is None:
        check_forward(run, oracle, tensors, options)
        return
    q, *others = tensors
    kept = [narrow(x, stored, s) for x, s in zip(others, SCALES, strict=True)]
    true = [x.to(q.dtype) * s for x, s in zip(kept, SCALES, strict=True)]

    def narrowed(_q: Tensor, *_: Tensor, **given: Any) -> Any:
        return run(_q, *kept, **given, k_scale=SCALES[0], v_scale=SCALES[1])

    check_forward(narrowed, oracle, (q, *true), options, roundings=2)


SCALES = (0.5, 2.0)


def narrow(x: Tensor, stored: str, scale: float) -> Tensor:
    kind: torch.dtype = getattr(torch, stored)
    return (x / scale).to(kind)


def with_tuning(function: Any, chosen: Tuning) -> Any:
    return lambda *tensors, **options: function(*tensors, **options, tuning=chosen)


def varlen(
    q_lens: list[int],
    kv_lens: list[int],
    *,
    heads: tuple[int, int] = (4, 2),
    head_dim: int = 64,
    dtype: str = "float16",
    splits: int | None = None,
    backward: bool = False,
    head_v: int | None = None,
    stored: str | None = None,
    **rule: Any,
) -> None:
    tensors = shorter(test_varlen.tensors(q_lens, kv_lens, *heads, head_dim, dtype), head_v)
    run = with_tuning(segmented.varlen_attention, tuning(splits))
    judge(run, reference.varlen_attention, tensors, ragged(q_lens, kv_lens) | rule, stored, backward)


def neighbours_do_not_leak() -> None:
    """NaN in one sequence of a ragged batch stays in it."""
    q_lens, kv_lens = [9, 5, 3], [20, 7, 33]
    q, k, v = test_varlen.tensors(q_lens, kv_lens, 2, 2, 64, "float16")
    k[20:27], v[20:27] = math.nan, math.nan
    out = segmented.varlen_attention(q, k, v, **ragged(q_lens, kv_lens), tuning=tuning())
    assert out[9:14].isnan().all()
    assert not out[:9].isnan().any()
    assert not out[14:].isnan().any()


def paged_case(
    q_lens: list[int],
    kv_lens: list[int],
    page_size: int,
    *,
    heads: tuple[int, int] = (4, 2),
    head_dim: int = 64,
    dtype: str = "float16",
    splits: int | None = None,
    config: Config | None = SMALL,
    head_v: int | None = None,
    stored: str | None = None,
    **rule: Any,
) -> None:
    """Unused pages, tails of pages and table entries past the end are poison."""
    (q, k_cache, v_cache), options, (k, v) = test_paged.case(q_lens, kv_lens, page_size, heads, head_dim, dtype)
    (q, k_cache, v_cache), (_, k, v) = (shorter(x, head_v) for x in ((q, k_cache, v_cache), (q, k, v)))
    scales: dict[str, float] = {}
    if stored is not None:
        k_cache, v_cache = narrow(k_cache, stored, SCALES[0]), narrow(v_cache, stored, SCALES[1])
        k, v = (narrow(x, stored, s).to(q.dtype) * s for x, s in zip((k, v), SCALES, strict=True))
        scales = {"k_scale": SCALES[0], "v_scale": SCALES[1]}
    out = paged.paged_attention(q, k_cache, v_cache, **options, **rule, **scales, splits=splits, config=config)
    exact = reference.varlen_attention(q, k, v, **ragged(q_lens, kv_lens), **rule)
    low = reference.varlen_attention(q, k, v, **ragged(q_lens, kv_lens), **rule, dtype=q.dtype)
    assert out.dtype == q.dtype
    assert excess(out, exact, low, roundings=1 if stored is None else 2) <= 1


def split_segments_match_whole(kv_len: int, splits: int) -> None:
    """The number of segments changes rounding only."""
    tensors = qkv(1, 4, 2, 1, kv_len, 64, torch.float16)
    one, many = (segmented.attention(*tensors, tuning=tuning(n)).double() for n in (1, splits))
    assert (one - many).abs().max() <= 2e-3


def far_apart(what: str) -> None:
    """K and V whose second batch, or whose rows, lie more than 2^31 elements away. Untouched memory costs nothing."""
    q, k, v = qkv(2, 2, 1, 9, 20, 64, torch.float16)
    step = 2**31 + 64
    room = torch.empty(step + 2**14 if what == "batch" else 20 * 2**27 + 2**7, dtype=torch.float16)
    strides = (step, 20 * 64, 64, 1) if what == "batch" else (64, 0, 2**27, 1)
    far_k, far_v = (
        room.as_strided((2, 1, 20, 64), strides, start) for start in (0, 8192 if what == "batch" else 2**20)
    )
    far_k.copy_(k)
    far_v.copy_(v)
    plan = with_tuning(segmented.attention, tuning())
    assert torch.equal(plan(q, far_k, far_v, causal=True), plan(q, k, v, causal=True))


def far_page() -> None:
    """A page whose first element lies past 2^31."""
    q = normal(1, 2, 64, dtype=torch.float16, seed=1)
    k, v = (normal(1, 16, 1, 64, dtype=torch.float16, seed=s) for s in (2, 3))
    room = torch.empty(2**31 + 2**13, dtype=torch.float16)
    caches = [room.as_strided((2, 16, 1, 64), (2**31, 64, 64, 1), start) for start in (0, 4096)]
    for cache, x in zip(caches, (k, v), strict=True):
        cache[1:].copy_(x)
    options: dict[str, Any] = {
        "block_table": torch.tensor([[1]], dtype=torch.int32),
        "cache_seqlens": torch.tensor([13], dtype=torch.int32),
        "cu_seqlens_q": cumulative([1]),
        "max_seqlen_q": 1,
        "config": SMALL,
    }
    near = options | {"block_table": torch.tensor([[0]], dtype=torch.int32)}
    assert torch.equal(paged.paged_attention(q, *caches, **options), paged.paged_attention(q, k, v, **near))


def dense_judged_wrongly(q_len: int, kv_len: int) -> None:
    """Judges the kernel by an oracle whose causal mask is off by one."""
    tensors = qkv(1, 2, 2, q_len, kv_len, 64, torch.float16)
    mask = torch.ones(q_len, kv_len).tril(1).bool()

    def oracle(*given: Tensor, causal: bool, **options: Any) -> Tensor:
        return reference.attention(*given, mask=mask, **options)

    check_forward(with_tuning(segmented.attention, tuning()), oracle, tensors, {"causal": True})


def lonely_gradients() -> None:
    """Queries that see no key, and keys that no query sees, get exactly zero."""
    q, k, v = (x.requires_grad_() for x in qkv(1, 2, 2, 40, 30, 64, torch.float16))
    out = segmented.attention(q, k, v, causal=True, tuning=tuning())
    dq, _, _ = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
    assert not dq[:, :, :10].any() and not dq.isnan().any()
    q, k, v = (x.requires_grad_() for x in qkv(1, 2, 2, 10, 70, 64, torch.float16))
    out = segmented.attention(q, k, v, causal=True, causal_alignment="top_left", tuning=tuning())
    _, dk, dv = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
    assert not dk[:, :, 10:].any() and not dv[:, :, 10:].any()
    assert dv[:, :, :10].abs().sum() > 0


def lse(causal: bool, splits: int) -> None:
    """The log-sum-exp kept for the backward pass; -inf where no key is seen."""
    from kernels.triton_support import forward
    from kernels.triton_support.forward import Layout, Rule

    q, k, v = qkv(2, 4, 2, 20, 12, 64, torch.float16)
    plan = forward.plan(
        q, k, v, Rule(causal, True, None, None, 0.125), Layout(2, 20, 12), targets.facts_of(q.device),
        keep_lse=True, config=SMALL, splits=splits,
    )  # fmt: skip
    plan.run()
    scores = q.double() @ k.double().repeat_interleave(2, dim=1).transpose(-1, -2) * 0.125
    if causal:
        scores.masked_fill_(torch.arange(12) > torch.arange(20)[:, None] - 8, -math.inf)
    expected = torch.logsumexp(scores, -1).transpose(1, 2).flatten(0, 1)
    assert plan.lse is not None and plan.lse.shape == (40, 4)
    torch.testing.assert_close(plan.lse.double(), expected, atol=2e-3, rtol=0)


def append(counts: list[int], kv_lens: list[int], page_size: int, dtype: str) -> None:
    """The new keys are where the reference finds them, and nothing else has changed."""
    (_, k_cache, v_cache), options, (k, v) = test_paged.case([0] * len(kv_lens), kv_lens, page_size, dtype=dtype)
    table, sizes = options["block_table"], options["cache_seqlens"]
    want = [cache.clone() for cache in (k_cache, v_cache)]
    ends = cumulative(kv_lens).tolist()[1:]
    new = [torch.cat([x[end - count : end] for end, count in zip(ends, counts, strict=True)]) for x in (k, v)]
    # What is to be written is something else at first, so that writing nothing would be noticed.
    for cache in (k_cache, v_cache):
        for b, (size, count) in enumerate(zip(kv_lens, counts, strict=True)):
            for key in range(size - count, size):
                cache[table[b, key // page_size], key % page_size] = -7.0
    triton_append.append(
        *new, k_cache, v_cache, block_table=table, cache_seqlens=sizes,
        cu_seqlens_new=cumulative(counts), max_seqlen_new=max(counts),
    )  # fmt: skip
    for found, wanted in zip((k_cache, v_cache), want, strict=True):
        assert torch.equal(found.isnan(), wanted.isnan())
        assert torch.equal(found.nan_to_num(), wanted.nan_to_num())
    used = paged_reference.used_keys(k_cache, table[0].tolist(), kv_lens[0])
    assert torch.equal(used, k[: kv_lens[0]])


def chosen() -> list[dict[str, Any]]:
    """Choices made by one call with nothing given."""
    from kernels.triton_support import choices

    choices.forget()
    segmented.attention(*qkv(1, 2, 2, 5, 40, 64, torch.float16), causal=True)
    return choices.made()
