"""Dense backends of this machine against the oracle, at the shapes where kernels break."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import attention, reference
from kernels.registry import Unsupported

from .helpers import DTYPES, check_backward, check_forward, normal, qkv

BACKENDS = ("sdpa_math", "sdpa_flash", "segmented")
AROUND = [n + d for n in (64, 128, 256) for d in (-1, 0, 1)]


def run(backend: str) -> Any:
    return lambda *tensors, **options: attention(*tensors, backend=backend, **options)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kv_len", AROUND)
def test_lengths_around_powers_of_two(backend: str, kv_len: int) -> None:
    for q_len in (1, 4, kv_len, 129):
        for causal in (False, True):
            check_forward(run(backend), reference.attention, qkv(1, 2, 2, q_len, kv_len, 64), {"causal": causal})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("head_dim", [1, 80, 96, 160, 192])
@pytest.mark.parametrize("dtype", list(DTYPES))
def test_odd_head_dims(backend: str, head_dim: int, dtype: str) -> None:
    tensors = qkv(1, 2, 1, 33, 65, head_dim, DTYPES[dtype])
    check_forward(run(backend), reference.attention, tensors, {"causal": True})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ratio", [1, 5, 6, 7, 12])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_grouped_heads_forward_and_backward(backend: str, ratio: int, dtype: str) -> None:
    tensors = qkv(2, 2 * ratio, 2, 30, 70, 16, DTYPES[dtype])
    check_forward(run(backend), reference.attention, tensors, {"causal": True})
    check_backward(run(backend), reference.attention, tensors, {"causal": True})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("q_len, kv_len", [(0, 5), (5, 0), (1, 1), (300, 40)])
@pytest.mark.parametrize("alignment", ["bottom_right", "top_left"])
def test_empty_and_short_keys(backend: str, q_len: int, kv_len: int, alignment: str) -> None:
    tensors = qkv(1, 4, 2, q_len, kv_len, 16)
    check_forward(run(backend), reference.attention, tensors, {"causal": True, "causal_alignment": alignment})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(40, 60), (2, 1, 40, 60), (1, 4, 40, 60), (2, 1, 1, 60), (1, 60)])
def test_mask_shapes_and_rows_that_see_nothing(backend: str, shape: tuple[int, ...]) -> None:
    keep = normal(*shape, seed=4) > -0.5
    keep[..., 0, :20] = False
    dead = keep.clone()
    dead[..., -1, :] = False
    additive = normal(*shape, seed=5).masked_fill(~keep, -torch.inf)
    tensors = qkv(2, 4, 2, 40, 60, 16)
    for mask in (keep, dead, additive):
        for causal in (False, True):
            options = {"mask": mask, "causal": causal}
            check_forward(run(backend), reference.attention, tensors, options)
            check_backward(run(backend), reference.attention, tensors, options)


@pytest.mark.parametrize("backend", BACKENDS)
def test_expanded_and_strided_keys(backend: str) -> None:
    q = normal(2, 6, 20, 16)
    expanded = normal(2, 1, 50, 16, seed=1).expand(2, 6, 50, 16)
    strided = normal(2, 50, 6, 16, seed=2).transpose(1, 2)
    sliced = normal(2, 6, 100, 16, seed=3)[:, :, ::2]
    for k, v in ((expanded, expanded), (strided, sliced), (sliced, expanded)):
        check_forward(run(backend), reference.attention, (q, k, v), {"causal": True})
        check_backward(run(backend), reference.attention, (q, k, v), {"causal": True})


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    heads_kv = draw(st.integers(1, 3))
    return {
        "batch": draw(st.integers(1, 2)),
        "heads_kv": heads_kv,
        "heads_q": heads_kv * draw(st.sampled_from([1, 2, 5])),
        "q_len": draw(st.sampled_from([1, 2, 7, 127, 128, 129, 150])),
        "kv_len": draw(st.sampled_from([1, 3, 31, 64, 127, 128, 129, 257])),
        "head_dim": draw(st.sampled_from([8, 16, 20])),
        "dtype": draw(st.sampled_from(list(DTYPES))),
        "causal": draw(st.booleans()),
        "causal_alignment": draw(st.sampled_from(["bottom_right", "top_left"])),
        "window": draw(st.sampled_from([None, 1, 5, 128, 200])),
        "softcap": draw(st.sampled_from([None, 3.0])),
        "scale": draw(st.sampled_from([None, 0.3])),
    }


def _check(backend: str, problem: dict[str, Any], backward: bool) -> None:
    shape = {n: problem[n] for n in ("batch", "heads_q", "heads_kv", "q_len", "kv_len", "head_dim")}
    options = {n: problem[n] for n in ("causal", "causal_alignment", "window", "softcap", "scale")}
    tensors = qkv(**shape, dtype=DTYPES[problem["dtype"]])
    if options["softcap"] is not None and backend.startswith("sdpa"):
        with pytest.raises(Unsupported, match="softcap"):
            attention(*tensors, backend=backend, **options)
        return
    check_forward(run(backend), reference.attention, tensors, options)
    if backward:
        check_backward(run(backend), reference.attention, tensors, options)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(problem=problems())
def test_any_problem(backend: str, problem: dict[str, Any]) -> None:
    _check(backend, problem, backward=True)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=300, deadline=None)
@given(problem=problems())
def test_any_problem_at_length(backend: str, problem: dict[str, Any]) -> None:
    _check(backend, problem, backward=True)
