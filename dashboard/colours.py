"""One colour per backend on every page, told apart with every common colour blindness, on white and on black.

Shapes of points and dashes differ along with the colours, and a colour repeats only with another shape. Known backends
have fixed places, so that a filter never recolours what is left.
"""

from __future__ import annotations

import hashlib

#: Middle lightness, so that both themes carry them.
PALETTE = ("#0077BB", "#EE7733", "#009988", "#CC3311", "#33BBEE", "#EE3377", "#8C7A1D", "#9A6FB0")
SHAPES = ("circle", "square", "triangle-up", "diamond")
DASHES: tuple[list[int], ...] = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])

WORSE, BETTER, EVEN, QUIET = "#D55E00", "#0072B2", "#C8C8C8", "#888888"

_KNOWN = (
    "sdpa_math", "sdpa_flash", "segmented", "sdpa_efficient", "sdpa_cudnn", "flex", "varlen", "paged",
    "flash_attn", "flash_attn_3", "flash_attn_4", "xformers", "flashinfer", "paged_gather", "sdpa_padded",
    "step_segmented", "step_scores", "rope_per_length", "rope_cached", "rope_padded", "stream_copy", "stream_into",
)  # fmt: skip


def place(name: str) -> int:
    """The place of a backend in palette and shapes: fixed for those of ours, by its name for any other."""
    if name in _KNOWN:
        return _KNOWN.index(name)
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:4], "big") % (len(PALETTE) * 4)


def colour(name: str) -> str:
    """Colour of a backend."""
    return PALETTE[place(name) % len(PALETTE)]


def shape(name: str) -> str:
    """Shape of its points."""
    return SHAPES[_turn(name) % len(SHAPES)]


def dash(name: str) -> list[int]:
    """Dash of its lines."""
    return DASHES[_turn(name) % len(DASHES)]


def _turn(name: str) -> int:
    # Neighbours in the palette differ in shape too, and the same colour never meets the same shape.
    return place(name) + place(name) // len(PALETTE)
