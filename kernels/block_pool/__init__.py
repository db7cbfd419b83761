"""A pool of cache blocks that requests of different lengths come to and leave; it is compacted where it has to be."""

from __future__ import annotations

from ..backend import Backend, Capabilities, Support

_SUPPORT = Support(directions=("fwd",))
_BOTH = Capabilities({"cpu": _SUPPORT, "cuda": _SUPPORT})


def _backend(name: str, summary: str) -> Backend:
    return Backend(
        f"pool_{name}", {"block_pool": f"kernels.block_pool.pools:{name}"}, _BOTH, summary,
        probe="kernels.attention.sdpa:probe",
    )  # fmt: skip


BACKENDS = (
    _backend("paged", "ours: any free blocks"),
    _backend("first_fit", "the first run of free blocks that is long enough"),
    _backend("best_fit", "the shortest run of free blocks that is long enough"),
)
