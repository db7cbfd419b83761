"""Our Triton forward kernels over dense and ragged sequences, run by the interpreter, against the oracle."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from . import triton_cases as cases
from .triton_interpreter import interpreted

pytestmark = pytest.mark.slow


MASKS: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"causal": True},
    "top_left": {"causal": True, "causal_alignment": "top_left"},
    "window": {"window": 9},
    "causal_window": {"causal": True, "window": 20},
    "window_top_left": {"window": 5, "causal_alignment": "top_left"},
    "softcap": {"softcap": 2.0},
    "everything": {"causal": True, "window": 33, "softcap": 3.0},
}
#: Around the tiles of 32 rows and 16 keys, shorter and longer keys than queries, and none.
LENGTHS = [(1, 1), (31, 33), (33, 17), (40, 30), (16, 64), (7, 0), (0, 5)]
HEADS = [(2, 2), (6, 2), (5, 1), (7, 1), (12, 1)]
HEAD_DIMS = [64, 80, 96, 128, 160, 192, 256]
DTYPES = ["float16", "bfloat16"]
STORED = ["float8_e4m3fn", "float8_e5m2"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", MASKS)
def test_masks_at_lengths_around_a_tile(mask: str, dtype: str) -> None:
    for (q_len, kv_len), heads in zip(LENGTHS, itertools.cycle(HEADS)):
        interpreted(cases.dense, q_len, kv_len, heads=heads, dtype=dtype, **MASKS[mask])


@pytest.mark.parametrize("head_dim", [*HEAD_DIMS, 72, 88, 112, 16, 24])
def test_head_sizes_that_are_no_power_of_two(head_dim: int) -> None:
    for dtype, mask in (("float16", "causal"), ("bfloat16", "everything")):
        interpreted(cases.dense, 33, 41, head_dim=head_dim, heads=(2, 1), dtype=dtype, **MASKS[mask])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["large", "one_hot", "expanded", "bshd", "strided"])
def test_adversarial_values_and_strides(kind: str, dtype: str) -> None:
    for mask in ("everything",) if dtype == "bfloat16" else ("full",):
        interpreted(cases.dense, 37, 50, kind=kind, heads=(4, 2), dtype=dtype, **MASKS[mask])


@pytest.mark.parametrize("scale", [0.0, -0.2, 1.0])
def test_any_scale(scale: float) -> None:
    interpreted(cases.dense, 20, 30, scale=scale, causal=True)


@pytest.mark.parametrize("kind", ["normal", "bshd"])
@pytest.mark.parametrize("mask", ["full", "causal", "everything"])
def test_tensor_descriptors(mask: str, kind: str) -> None:
    """Both alike: what the descriptor reads past the end is zero, not the next head."""
    config = cases.Config(32, 16, 4, 2, descriptor=True)
    for head_dim in (64, 80):
        interpreted(
            cases.dense, 37, 50, arch=90, config=config, kind=kind, head_dim=head_dim, heads=(4, 2), **MASKS[mask]
        )  # fmt: skip


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("splits", [2, 9])
def test_decode_with_split_keys(mask: str, splits: int) -> None:
    for q_len, kv_len, heads in ((1, 100, (4, 1)), (4, 65, (5, 1)), (3, 17, (2, 1)), (1, 0, (2, 1))):
        interpreted(cases.dense, q_len, kv_len, heads=heads, splits=splits, **MASKS[mask])


@pytest.mark.parametrize("kv_len", [1, 127, 128, 129, 333])
def test_the_number_of_segments_changes_rounding_only(kv_len: int) -> None:
    interpreted(cases.split_segments_match_whole, kv_len, 7)


@pytest.mark.parametrize("splits", [None, 3])
@pytest.mark.parametrize(
    "lens",
    [
        ([66, 1, 7], [66, 65, 32]),
        ([1, 1, 1], [1, 127, 129]),
        ([5, 0, 3], [0, 4, 2]),
        ([0], [0]),
        ([0, 0], [5, 0]),
        ([], []),
    ],
)
def test_ragged_batches(lens: tuple[list[int], list[int]], splits: int | None) -> None:
    for mask in ("causal", "everything"):
        interpreted(cases.varlen, *lens, splits=splits, **MASKS[mask])


def test_a_ragged_neighbour_does_not_leak() -> None:
    interpreted(cases.neighbours_do_not_leak)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("splits", [1, 3])
def test_log_sum_exp(causal: bool, splits: int) -> None:
    interpreted(cases.lse, causal, splits)


@pytest.mark.parametrize("mask, dtype", [("full", "float16"), ("causal", "bfloat16"), ("everything", "float16")])
def test_values_of_another_head_size(mask: str, dtype: str) -> None:
    """Keys of 192 numbers and values of 128: prefill, decode with split keys, ragged."""
    given: dict[str, Any] = {"head_dim": 192, "head_v": 128, "dtype": dtype, **MASKS[mask]}
    interpreted(cases.dense, 20, 37, heads=(4, 1), **given)
    interpreted(cases.dense, 1, 100, heads=(4, 2), splits=3, **given)
    interpreted(cases.varlen, [5, 0, 1], [40, 2, 33], **given)


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_eight_bit_keys_and_values(dtype: str, stored: str) -> None:
    given: dict[str, Any] = {"dtype": dtype, "stored": stored}
    interpreted(cases.dense, 37, 50, heads=(4, 2), **given, **MASKS["everything"])
    interpreted(cases.dense, 3, 70, heads=(4, 2), splits=3, **given)
    interpreted(cases.varlen, [66, 1, 7], [66, 65, 32], causal=True, **given)
    interpreted(cases.dense, 1, 70, heads=(4, 1), head_dim=192, head_v=128, splits=2, **given)


@pytest.mark.parametrize("what", ["batch", "row"])
def test_offsets_past_two_to_the_31(what: str) -> None:
    interpreted(cases.far_apart, what)


def test_a_mistake_in_the_kernel_is_found() -> None:
    """The judge itself: one key too many under the causal mask must fail."""
    with pytest.raises(AssertionError):
        interpreted(cases.dense_judged_wrongly, 40, 40)


def test_shipped_tiles_are_chosen_and_recorded() -> None:
    (choice,) = interpreted(cases.chosen)
    assert choice["source"] == "shipped"
    assert "dk64" in choice["key"] and choice["block_m"] == 16


@pytest.mark.grid
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("mask", MASKS)
def test_the_whole_grid_with_shipped_tiles(mask: str, head_dim: int, dtype: str) -> None:
    for q_len, kv_len, heads in (
        (127, 129, (1, 1)), (129, 127, (2, 1)), (65, 193, (3, 1)),
        (1, 257, (4, 1)), (4, 128, (7, 1)), (200, 64, (1, 1)),
    ):  # fmt: skip
        interpreted(
            cases.dense, q_len, kv_len, heads=heads, head_dim=head_dim, dtype=dtype, config=None, **MASKS[mask]
        )  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(64, None), (80, None), (128, None), (192, 128), (256, None)])
@pytest.mark.parametrize("stored", [None, *STORED])
@pytest.mark.parametrize("mask", MASKS)
def test_the_whole_grid_of_eight_bits_and_latent_heads(
    mask: str, stored: str | None, sizes: tuple[int, int | None], dtype: str
) -> None:
    if stored is None and sizes[1] is None:
        pytest.skip("the grid above")
    for q_len, kv_len, heads in ((127, 129, (1, 1)), (65, 193, (3, 1)), (1, 257, (4, 1)), (4, 128, (7, 1))):
        interpreted(
            cases.dense, q_len, kv_len, heads=heads, head_dim=sizes[0], head_v=sizes[1], stored=stored, dtype=dtype,
            config=None, **MASKS[mask],
        )  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [*((d, None) for d in HEAD_DIMS), (192, 128)])
@pytest.mark.parametrize("mask", [name for name, rule in MASKS.items() if "causal_alignment" not in rule])
def test_the_whole_grid_of_ragged_batches(mask: str, sizes: tuple[int, int | None], dtype: str) -> None:
    for lens in (([127, 1, 65], [129, 257, 64]), ([1, 0, 4], [128, 5, 127])):
        for stored in (None, *STORED):
            interpreted(
                cases.varlen, *lens, head_dim=sizes[0], head_v=sizes[1], stored=stored, dtype=dtype, **MASKS[mask]
            )  # fmt: skip
