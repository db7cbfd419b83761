"""Our Triton kernels over a paged cache, run by the interpreter; what is not used is NaN."""

from __future__ import annotations

from typing import Any

import pytest

from . import triton_cases as cases
from .test_triton_forward import DTYPES, HEAD_DIMS, MASKS, STORED
from .triton_interpreter import interpreted

pytestmark = pytest.mark.slow


PAGED_MASKS: dict[str, dict[str, Any]] = {name: rule for name, rule in MASKS.items() if "causal_alignment" not in rule}
MIXED = ([30, 1, 4, 0, 1, 3], [30, 57, 70, 9, 1, 0])
DECODE = ([1, 1, 0, 1], [130, 57, 9, 0])


@pytest.mark.parametrize("page_size", [1, 5, 16, 128, 256])
@pytest.mark.parametrize("mask", PAGED_MASKS)
def test_prefill_chunk_and_decode_in_one_batch(mask: str, page_size: int) -> None:
    rule = {"causal": False} | PAGED_MASKS[mask]
    interpreted(cases.paged_case, *MIXED, page_size, **rule)
    interpreted(cases.paged_case, *DECODE, page_size, splits=4, heads=(8, 2), **rule)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [(5, 1), (6, 1), (7, 1), (12, 2)])
def test_group_sizes(heads: tuple[int, int], dtype: str) -> None:
    interpreted(cases.paged_case, *MIXED, 16, heads=heads, dtype=dtype, causal=True)


@pytest.mark.parametrize("kv_len", [15, 16, 17, 127, 128, 129])
def test_lengths_around_a_page_and_a_tile(kv_len: int) -> None:
    for q_len, splits in ((1, None), (4, 3)):
        interpreted(cases.paged_case, [q_len], [kv_len], 16, splits=splits, causal=True)


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_head_sizes(head_dim: int) -> None:
    interpreted(cases.paged_case, *MIXED, 16, head_dim=head_dim, causal=True, config=None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("page_size", [1, 16, 256])
def test_values_of_another_head_size(page_size: int, dtype: str) -> None:
    """Keys of 192 numbers and values of 128."""
    given: dict[str, Any] = {"head_dim": 192, "head_v": 128, "dtype": dtype, "causal": True}
    interpreted(cases.paged_case, *MIXED, page_size, **given)
    interpreted(cases.paged_case, *DECODE, page_size, splits=4, heads=(8, 2), **given)


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("page_size", [1, 16, 256])
def test_eight_bit_caches(page_size: int, stored: str) -> None:
    """What is not used is NaN in these types too."""
    interpreted(cases.paged_case, *MIXED, page_size, stored=stored, causal=True)
    interpreted(cases.paged_case, *DECODE, page_size, stored=stored, splits=4, dtype="bfloat16", causal=True)
    interpreted(cases.paged_case, *DECODE, page_size, stored=stored, head_dim=192, head_v=128, causal=True)


def test_a_page_past_two_to_the_31() -> None:
    interpreted(cases.far_page)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("page_size", [1, 16, 256])
def test_append_writes_the_new_keys_and_nothing_else(page_size: int, dtype: str) -> None:
    interpreted(cases.append, [3, 0, 1, 9], [20, 5, 9, 9], page_size, dtype)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("page_size", [1, 16, 64, 256])
def test_the_whole_grid_with_shipped_tiles(page_size: int, head_dim: int, dtype: str) -> None:
    for rule in PAGED_MASKS.values():
        for lens in (([129, 1, 4], [130, 257, 129]), ([1, 1], [513, 1])):
            interpreted(
                cases.paged_case, *lens, page_size, head_dim=head_dim, dtype=dtype, config=None,
                **({"causal": False} | rule),
            )  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(64, None), (80, None), (128, None), (192, 128), (256, None)])
@pytest.mark.parametrize("stored", [None, *STORED])
@pytest.mark.parametrize("page_size", [1, 16, 64, 256])
def test_the_whole_grid_of_eight_bits_and_latent_heads(
    page_size: int, stored: str | None, sizes: tuple[int, int | None], dtype: str
) -> None:
    if stored is None and sizes[1] is None:
        pytest.skip("the grid above")
    for rule in PAGED_MASKS.values():
        for lens in (([129, 1, 4], [130, 257, 129]), ([1, 1], [513, 1])):
            interpreted(
                cases.paged_case, *lens, page_size, head_dim=sizes[0], head_v=sizes[1], stored=stored, dtype=dtype,
                config=None, **({"causal": False} | rule),
            )  # fmt: skip
