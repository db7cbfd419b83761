"""Rotary position embedding of sequences of different lengths, end to end in memory."""

from __future__ import annotations

from ..backend import Backend, Capabilities, Support

_SUPPORT = Support(directions=("fwd",))
_BOTH = Capabilities({"cpu": _SUPPORT, "cuda": _SUPPORT})
_PROBE = "kernels.attention.sdpa:probe"

BACKENDS = (
    Backend(
        "rope_per_length", {"rope": "kernels.rope.variants:per_length"}, _BOTH,
        "ours: angles once per position that a sequence has, shared by the batch", probe=_PROBE,
    ),
    Backend(
        "rope_cached", {"rope": "kernels.rope.variants:cached"}, _BOTH,
        "ours: rows of a table made beforehand", probe=_PROBE,
    ),
    Backend(
        "rope_padded", {"rope": "kernels.rope.variants:padded"}, _BOTH,
        "baseline: angles for every sequence up to the longest, and a padded batch", probe=_PROBE,
    ),
)  # fmt: skip
