"""One compiled function called with batches of changing size, from a cold cache of compiled graphs."""

from __future__ import annotations

from ..backend import Backend, Capabilities, Support

_SUPPORT = Support(directions=("fwd",))
_BOTH = Capabilities({"cpu": _SUPPORT, "cuda": _SUPPORT})


def _backend(name: str, summary: str) -> Backend:
    return Backend(
        f"compiled_{name}", {"compiled_batches": f"kernels.compiled_batches.calls:{name}"}, _BOTH, summary,
        probe="kernels.attention.sdpa:probe",
    )  # fmt: skip


BACKENDS = (
    _backend("auto", "torch.compile: what changed once becomes a variable of the graph"),
    _backend("dynamic", "torch.compile(dynamic=True): sizes are variables from the start"),
    _backend("static", "torch.compile(dynamic=False): a graph for each size, then none"),
    _backend("powers", "static, batches padded to powers of two"),
    _backend("eights", "static, batches padded to multiples of 8"),
)
