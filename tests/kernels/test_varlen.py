"""Ragged backends of this machine against the oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import reference, varlen_attention
from kernels.registry import Unsupported

from .helpers import DTYPES, check_backward, check_forward, normal, ragged

BACKENDS = ("segmented", "sdpa_padded")
BATCHES = [
    ([130, 1, 7, 64], [130, 300, 129, 64]),
    ([1, 1, 1, 1], [1, 127, 128, 257]),
    ([5, 0, 3], [0, 4, 2]),
    ([4, 2, 8], [100, 33, 8]),
    ([0], [0]),
    ([0, 0], [5, 0]),
    ([], []),
]


def tensors(
    q_lens: list[int], kv_lens: list[int], heads_q: int, heads_kv: int, head_dim: int, dtype: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    kind = DTYPES[dtype]
    q = normal(sum(q_lens), heads_q, head_dim, dtype=kind, seed=1)
    k, v = (normal(sum(kv_lens), heads_kv, head_dim, dtype=kind, seed=s) for s in (2, 3))
    return q, k, v


def run(backend: str) -> Any:
    return lambda *given_tensors, **options: varlen_attention(*given_tensors, backend=backend, **options)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lens", BATCHES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_batches(backend: str, lens: tuple[list[int], list[int]], dtype: str) -> None:
    given_tensors = tensors(*lens, 6, 2, 16, dtype)
    for causal in (False, True):
        options = {**ragged(*lens), "causal": causal}
        check_forward(run(backend), reference.varlen_attention, given_tensors, options)
        if sum(lens[0]) and sum(lens[1]):
            check_backward(run(backend), reference.varlen_attention, given_tensors, options)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    lens=st.lists(st.tuples(st.integers(0, 140), st.integers(0, 140)), min_size=1, max_size=5),
    ratio=st.sampled_from([1, 5, 7]),
    causal=st.booleans(),
    window=st.sampled_from([None, 1, 17]),
    softcap=st.sampled_from([None, 2.0]),
)
def test_any_batch(
    backend: str,
    lens: list[tuple[int, int]],
    ratio: int,
    causal: bool,
    window: int | None,
    softcap: float | None,
) -> None:
    q_lens, kv_lens = [a for a, _ in lens], [b for _, b in lens]
    options = {**ragged(q_lens, kv_lens), "causal": causal, "window": window, "softcap": softcap}
    given_tensors = tensors(q_lens, kv_lens, ratio, 1, 8, "float32")
    if softcap is not None and backend == "sdpa_padded":
        with pytest.raises(Unsupported, match="softcap"):
            run(backend)(*given_tensors, **options)
        return
    check_forward(run(backend), reference.varlen_attention, given_tensors, options)
