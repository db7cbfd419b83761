"""Every backend by name. Importing this module imports no torch.

To add a backend: one file that ends in ``BACKENDS = (Backend(...),)`` and imports torch or its library only
inside functions (or in modules that ``operations`` names), and one line in ``DECLARED`` below. Backends of
others come in through the entry point group ``attnwatch.backends`` (name -> :class:`Backend` or function),
or by name as ``package.module:function``; a function says its operation by its parameters: ``block_table``
is ``paged_attention``, ``cu_seqlens_q`` is ``varlen_attention``, else ``attention``.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .backend import (
    OPERATIONS,
    UNDECLARED,
    Availability,
    Backend,
    Capabilities,
    Scalar,
    Support,
    Unavailable,
    UnknownBackend,
    Unsupported,
    describe,
    resolve,
)

__all__ = [
    "BACKENDS",
    "ENTRY_POINT_GROUP",
    "OPERATIONS",
    "ORACLES",
    "Availability",
    "Backend",
    "Capabilities",
    "Scalar",
    "Support",
    "Unavailable",
    "UnknownBackend",
    "Unsupported",
    "all_backends",
    "get",
    "resolve",
]

ENTRY_POINT_GROUP = "attnwatch.backends"

#: Modules that declare backends; one line each.
DECLARED = (
    "kernels.attention.sdpa",
    "kernels.attention.padded",
    "kernels.attention.flex",
    "kernels.attention.varlen",
    "kernels.attention.xformers",
    "kernels.attention.flash_attn",
    "kernels.attention.flash_attn_3",
    "kernels.attention.flash_attn_4",
    "kernels.attention.flashinfer",
    "kernels.segmented",
    "kernels.segmented.triton_backend",
    "kernels.paged",
    "kernels.paged.triton_backend",
    "kernels.kv_cache",
    "kernels.layer_norm",
    "kernels.softmax",
    "kernels.gemm",
    "kernels.model_step",
    "kernels.rope",
    "kernels.stream",
    "kernels.shared_stride",
    "kernels.kv_gradients",
    "kernels.token_mask",
    "kernels.kv_pruning",
    "kernels.serving",
    "kernels.compiled_batches",
    "kernels.block_pool",
)

#: operation -> "module:function" of the readable oracle that runs on a CPU.
ORACLES: dict[str, str] = {
    "attention": "kernels.attention.reference:attention",
    "varlen_attention": "kernels.attention.reference:varlen_attention",
    "paged_attention": "kernels.paged.reference:paged_attention",
    "kv_cache": "kernels.kv_cache.reference:kv_cache",
    "layer_norm": "kernels.layer_norm.reference:layer_norm",
    "softmax": "kernels.softmax.reference:softmax",
    "gemm": "kernels.gemm.reference:gemm",
    "model_step": "kernels.model_step.reference:model_step",
    "rope": "kernels.rope.reference:rope",
    "stream": "kernels.stream.reference:stream",
    "shared_stride": "kernels.shared_stride.reference:shared_stride",
    "kv_gradients": "kernels.kv_gradients.reference:kv_gradients",
    "token_mask": "kernels.token_mask.reference:token_mask",
    "kv_pruning": "kernels.kv_pruning.reference:kv_pruning",
    "serving": "kernels.serving.reference:serving",
    "compiled_batches": "kernels.compiled_batches.reference:compiled_batches",
    "block_pool": "kernels.block_pool.reference:block_pool",
}


def _declared(module: str) -> tuple[Backend, ...]:
    """Backends of one of our modules; one that cannot be imported must not take the others with it."""
    try:
        found: tuple[Backend, ...] = importlib.import_module(module).BACKENDS
        return found
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return (Backend(module.rpartition(".")[2], {}, broken=f"{module} failed to load: {describe(error)}"),)


BACKENDS: dict[str, Backend] = {b.name: b for module in DECLARED for b in _declared(module)}


def get(name: str) -> Backend:
    """The backend called ``name``: one of ours, an entry point, or "package.module:function".

    Raises :class:`UnknownBackend` with close matches. A backend of others that fails to load is returned
    all the same; its ``availability`` says why.
    """
    if name in BACKENDS:
        return BACKENDS[name]
    if ":" in name:
        return _load(name, lambda: _attribute(name))
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name == name:
            return _from_entry_point(point)
    known = sorted({*BACKENDS, *(p.name for p in entry_points(group=ENTRY_POINT_GROUP))})
    close = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"
    raise UnknownBackend(f"no backend {name!r}; {hint} Others can be given as package.module:function")


def all_backends() -> dict[str, Backend]:
    """Ours, then those of entry points. A name of ours is never replaced by an entry point."""
    found = dict(BACKENDS)
    for point in entry_points(group=ENTRY_POINT_GROUP):
        found.setdefault(point.name, _from_entry_point(point))
    return found


def _from_entry_point(point: EntryPoint) -> Backend:
    return _load(point.name, point.load, point.value)


def _load(name: str, loader: Callable[[], Any], target: str | None = None) -> Backend:
    target = target or name
    try:
        found = loader()
        if isinstance(found, Backend):
            return found
        if not callable(found):
            raise TypeError(f"{target} is {type(found).__name__}, neither a Backend nor a function")
        operation = str(getattr(found, "operation", None) or _operation(found))
        capabilities = getattr(found, "capabilities", UNDECLARED)
        summary = next(iter((inspect.getdoc(found) or "").splitlines()), "")
        return Backend(name, {operation: target}, capabilities, summary)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Backend(name, {}, broken=f"{target} failed to load: {describe(error)}")


def _attribute(target: str) -> Any:
    module, _, attribute = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def _operation(function: Callable[..., Any]) -> str:
    names = set(inspect.signature(function).parameters)
    if "block_table" in names:
        return "paged_attention"
    return "varlen_attention" if "cu_seqlens_q" in names else "attention"
