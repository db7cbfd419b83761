"""Gradients of our Triton kernels, run by the interpreter, against those of the oracle."""

from __future__ import annotations

import pytest

from . import triton_cases as cases
from .test_triton_forward import DTYPES, HEAD_DIMS, MASKS
from .triton_interpreter import interpreted

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", MASKS)
def test_gradients_under_masks(mask: str, dtype: str) -> None:
    for q_len, kv_len, heads in ((33, 41, (2, 2)), (40, 30, (5, 1)), (1, 17, (2, 1))):
        interpreted(cases.dense, q_len, kv_len, heads=heads, dtype=dtype, backward=True, **MASKS[mask])


@pytest.mark.parametrize("head_dim", [80, 96, 128, 160, 72])
def test_gradients_of_head_sizes(head_dim: int) -> None:
    interpreted(cases.dense, 33, 41, head_dim=head_dim, heads=(2, 1), backward=True, causal=True)


@pytest.mark.parametrize("kind", ["large", "bshd", "strided"])
def test_gradients_of_adversarial_values_and_strides(kind: str) -> None:
    interpreted(cases.dense, 33, 41, kind=kind, heads=(4, 2), backward=True, causal=True)


@pytest.mark.parametrize("mask", ["full", "everything"])
def test_gradients_with_scores_turned_over(mask: str) -> None:
    """The other way of making scores in the kernel that owns keys."""
    interpreted(cases.dense, 33, 41, heads=(6, 2), backward=True, rows_first=True, **MASKS[mask])


@pytest.mark.parametrize("lens", [([40, 1, 7, 33], [40, 65, 30, 33]), ([5, 0, 3], [0, 4, 2]), ([0, 0], [5, 0])])
def test_gradients_of_ragged_batches(lens: tuple[list[int], list[int]]) -> None:
    for mask in ("causal", "everything"):
        interpreted(cases.varlen, *lens, backward=True, **MASKS[mask])


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_with_values_of_another_head_size(dtype: str) -> None:
    interpreted(
        cases.dense, 20, 37, heads=(4, 1), head_dim=192, head_v=128, dtype=dtype, causal=True, backward=True
    )  # fmt: skip


def test_rows_and_keys_without_partners_get_zero() -> None:
    interpreted(cases.lonely_gradients)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("mask", MASKS)
def test_gradients_over_the_whole_grid_with_shipped_tiles(mask: str, head_dim: int, dtype: str) -> None:
    for q_len, kv_len, heads in ((127, 129, (1, 1)), (65, 100, (5, 1)), (129, 64, (2, 2))):
        interpreted(
            cases.dense, q_len, kv_len, heads=heads, head_dim=head_dim, dtype=dtype, config=None, backward=True,
            **MASKS[mask],
        )  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", MASKS)
def test_gradients_over_the_grid_of_latent_heads(mask: str, dtype: str) -> None:
    for q_len, kv_len, heads in ((127, 129, (1, 1)), (65, 100, (5, 1)), (129, 64, (2, 2))):
        interpreted(
            cases.dense, q_len, kv_len, heads=heads, head_dim=192, head_v=128, dtype=dtype, config=None, backward=True,
            **MASKS[mask],
        )  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("mask", [name for name, rule in MASKS.items() if "causal_alignment" not in rule])
def test_gradients_over_the_grid_of_ragged_batches(mask: str, head_dim: int, dtype: str) -> None:
    for lens in (([127, 1, 65], [129, 257, 64]), ([1, 0, 4], [128, 5, 127])):
        interpreted(cases.varlen, *lens, head_dim=head_dim, dtype=dtype, backward=True, **MASKS[mask])
