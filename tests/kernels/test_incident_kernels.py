"""Kernels of the latency incident: sound ones are right, faulty ones are wrong or wasteful exactly where they say."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kernels.faults import latency_incident, serving_step
from kernels.gemm import products
from kernels.kv_cache import reference as kv_reference
from kernels.kv_cache import steps
from kernels.layer_norm import reference as norm_reference
from kernels.layer_norm import variants
from kernels.paged import reference as paged_reference
from kernels.segmented import blocks as segmented
from kernels.softmax import blocks
from kernels.softmax import reference as softmax_reference


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("lens", [[1, 7, 16], [16, 16, 16]])
@pytest.mark.parametrize("step", [steps.trimmed, steps.fixed, latency_incident.whole_capacity])
def test_cache_steps_agree_with_the_oracle(step: object, lens: list[int]) -> None:
    q, cache = normal(3, 2, 4, 8), normal(3, 2, 2, 2, 16, 8, seed=1)
    kv_lens = torch.tensor(lens, dtype=torch.int32)
    want = kv_reference.kv_cache(q, cache, kv_lens=kv_lens)
    got = step(q, cache, kv_lens=kv_lens)  # type: ignore[operator]
    assert torch.allclose(got.double(), want, atol=1e-5)


def test_the_trimmed_step_reads_nothing_past_the_valid_keys() -> None:
    q, cache = normal(1, 1, 2, 8), normal(1, 1, 2, 1, 16, 8, seed=1)
    cache[..., 5:, :] = torch.nan
    assert bool(torch.isfinite(steps.trimmed(q, cache, kv_lens=torch.tensor([5], dtype=torch.int32))).all())


def norm_error(f: object, hidden: int, amplitude: float, variance: float, eps: float) -> float:
    x = (normal(8, hidden) * variance**0.5 + amplitude).half()
    weight, bias = normal(hidden, seed=1).half(), normal(hidden, seed=2).half()
    right = norm_reference.layer_norm(x, weight, bias, eps=eps)
    got = f(x, weight, bias, eps=eps).double()  # type: ignore[operator]
    return float((got - right).abs().max() / right.abs().max())


@pytest.mark.parametrize("amplitude, variance", [(0.0, 1.0), (0.0, 400.0), (20.0, 1.0), (0.0, 1e-6)])
def test_sound_layer_norms_are_right_everywhere(amplitude: float, variance: float) -> None:
    for f in (variants.fp32, variants.native):
        assert norm_error(f, 4096, amplitude, variance, 1e-5) < 2e-3


def test_a_sum_of_squares_past_65504_gives_the_bias_finite_and_wrong() -> None:
    assert norm_error(variants.narrow_sums, 4096, 0.0, 4.0, 1e-5) < 3e-3
    x = (normal(8, 4096) * 10.0).half()
    weight, bias = normal(4096, seed=1).half(), normal(4096, seed=2).half()
    assert torch.equal(variants.narrow_sums(x, weight, bias, eps=1e-5), bias.expand(8, -1))


def test_eps_that_underflows_makes_constant_rows_nan_and_the_guard_hides_it() -> None:
    x, weight, bias = torch.ones(2, 64).half(), torch.ones(64).half(), torch.full((64,), 0.5).half()
    assert bool(torch.isnan(variants.narrow_eps(x, weight, bias, eps=1e-8)).all())
    # 1e-5 does not underflow: 1/sqrt(1e-5) = 316 is finite in float16, so that eps is no cause of NaN.
    assert torch.equal(variants.narrow_eps(x, weight, bias, eps=1e-5), bias.expand(2, -1))
    assert bool((variants.narrow_guarded(x, weight, bias, eps=1e-8) == 0).all())


@pytest.mark.parametrize("columns, block", [(1, 1), (100, 16), (128, 128), (130, 128)])
@pytest.mark.parametrize("clip", [None, 10.0])
@pytest.mark.parametrize("form", [blocks.against_true, blocks.against_running])
def test_block_softmaxes_are_exact_and_a_clip_does_nothing(
    form: object, columns: int, block: int, clip: float | None
) -> None:
    x = normal(5, columns) * 20
    want = softmax_reference.softmax(x)
    assert torch.allclose(form(x, block=block, clip=clip).double(), want, atol=1e-6)  # type: ignore[operator]


def test_a_stale_maximum_overflows_past_ln_65504() -> None:
    limit = math.log(65504)
    for beyond, finite in ((limit - 0.1, True), (limit + 0.1, False)):
        x = torch.tensor([[0.0, beyond]]).half()
        assert bool(torch.isfinite(blocks.against_stale(x, block=1)).all()) is finite
        assert bool(torch.isfinite(blocks.against_stale(x, block=1, clip=11.0)).all())


@pytest.mark.parametrize("m, n, k", [(3, 5, 7), (32, 64, 96), (33, 31, 65), (1, 1, 1)])
@pytest.mark.parametrize("pad", [0, 1, 32])
@pytest.mark.parametrize("product", [products.native, products.padded, products.split, latency_incident.unaligned_gemm])
def test_products_agree(product: object, m: int, n: int, k: int, pad: int) -> None:
    a, b = normal(m, k + pad)[:, :k], normal(k, n + pad, seed=1)[:, :n]
    got = product(a, b)  # type: ignore[operator]
    assert torch.allclose(got.double(), a.double() @ b.double(), atol=1e-4)


@pytest.mark.parametrize("length, head_dim", [(257, 128), (256, 128), (257, 64)])
def test_the_sawtooth_is_slow_and_not_wrong(length: int, head_dim: int) -> None:
    q, k, v = (normal(1, 2, length, head_dim, seed=s) for s in range(3))
    want = segmented.attention(q, k, v, causal=True)
    assert torch.allclose(latency_incident.prefill_sawtooth(q, k, v, causal=True), want, atol=1e-5)


@pytest.mark.parametrize("page", [16, 64])
def test_small_pages_are_slow_and_not_wrong(page: int) -> None:
    blocks_, lens = 20, [70, 33]
    k, v = normal(blocks_, page, 2, 8), normal(blocks_, page, 2, 8, seed=1)
    table = torch.randperm(blocks_, generator=torch.Generator().manual_seed(0))[:10].view(2, 5).int()
    q = normal(2, 4, 8, seed=2)
    options = {
        "block_table": table, "cache_seqlens": torch.tensor(lens, dtype=torch.int32),
        "cu_seqlens_q": torch.tensor([0, 1, 2], dtype=torch.int32), "max_seqlen_q": 1,
    }  # fmt: skip
    want = paged_reference.paged_attention(q, k, v, **options)  # type: ignore[arg-type]
    got = latency_incident.small_pages(q, k, v, causal=True, **options)
    assert torch.allclose(got.double(), want, atol=1e-5)


def test_a_serving_step_runs_under_every_fault() -> None:
    for faults in (frozenset(), frozenset({"A1"}), frozenset({"A2", "A3"})):
        serving_step.step_with(faults, capacity=256, max_batch=2)([5, 200])
    with pytest.raises(ValueError, match="multiple of 128"):
        serving_step.step_with(frozenset(), capacity=100)
