"""What a backend is: operations, declared capabilities, and whether it can be used here. Imports no torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import faults

Scalar = bool | int | float | str | None
Problem = Mapping[str, Scalar]

#: The operations.
OPERATIONS = (
    "attention", "varlen_attention", "paged_attention", "kv_cache", "layer_norm", "softmax", "gemm",
    "kv_gradients", "token_mask", "kv_pruning",
    "model_step", "rope", "stream", "shared_stride",
    "serving", "compiled_batches", "block_pool",
)  # fmt: skip
DTYPES = ("float32", "float16", "bfloat16")
#: What keys and values may be stored in beside these.
STORED = ("float8_e4m3fn", "float8_e5m2")
ALIGNMENTS = ("bottom_right", "top_left")
MASKS = ("bool", "additive")


class UnknownBackend(KeyError):
    """No backend of that name. The message names close matches."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class Unsupported(NotImplementedError):
    """The backend cannot do this problem on this device; nothing else was run in its place."""


class Unavailable(RuntimeError):
    """The backend cannot be loaded here. ``remedy`` says how to get it."""

    def __init__(self, reason: str, remedy: str | None = None) -> None:
        super().__init__(reason)
        self.remedy = remedy


@dataclass(frozen=True)
class Availability:
    """Whether a backend can be used on a device; if not, why, and how to get it."""

    usable: bool
    reason: str | None = None
    version: str | None = None
    remedy: str | None = None


@dataclass(frozen=True)
class Support:
    """What a backend does on one kind of device. Every field is data; nothing here looks at the machine.

    ``alignments`` matters only where causal and q_len != kv_len. ``masked_rows``: queries that see no key
    come out as 0. ``kv_dtypes``: what keys and values may be stored in beside the dtype of the queries (forward only);
    ``head_dim_v``: values may have another head size. ``page_size_multiple``: page sizes must be a multiple of it.
    ``also`` holds what does not
    fit a field: a function of the problem that gives the reason, or None.
    """

    dtypes: tuple[str, ...] = DTYPES
    directions: tuple[str, ...] = ("fwd", "bwd")
    max_head_dim: int | None = None
    head_dim_multiple: int = 1
    gqa: bool = True
    masks: tuple[str, ...] = ()
    alignments: tuple[str, ...] = ALIGNMENTS
    masked_rows: bool = True
    empty: bool = True
    window: bool = False
    softcap: bool = False
    page_size_multiple: int = 1
    max_page_size: int | None = None
    kv_dtypes: tuple[str, ...] = ()
    head_dim_v: bool = False
    also: Callable[[Problem], str | None] | None = None

    def unsupported(self, problem: Problem) -> str | None:
        """The first reason why not, or None. ``problem`` uses the shared parameter names."""
        return next(iter(self._reasons(problem)), None)

    def _reasons(self, p: Problem) -> Iterable[str]:
        if (dtype := str(p.get("dtype", self.dtypes[0]))) not in self.dtypes:
            yield f"dtype {dtype} is not one of {', '.join(self.dtypes)}"
        if (direction := str(p.get("direction") or "fwd")) not in self.directions:
            yield "forward only" if direction == "bwd" else f"direction {direction} is unknown"
        yield from self._head_reasons(p)
        yield from self._mask_reasons(p)
        page_size = _int(p, "page_size")
        if page_size is not None and page_size % self.page_size_multiple:
            yield f"page_size {page_size} is not a multiple of {self.page_size_multiple}"
        if page_size is not None and self.max_page_size is not None and page_size > self.max_page_size:
            yield f"page_size {page_size} is above {self.max_page_size}"
        if self.also is not None and (reason := self.also(p)) is not None:
            yield reason

    def _head_reasons(self, p: Problem) -> Iterable[str]:
        head_dim = _int(p, "head_dim")
        if head_dim is not None and self.max_head_dim is not None and head_dim > self.max_head_dim:
            yield f"head_dim {head_dim} is above {self.max_head_dim}"
        if head_dim is not None and head_dim % self.head_dim_multiple:
            yield f"head_dim {head_dim} is not a multiple of {self.head_dim_multiple}"
        head_v = _int(p, "head_dim_v")
        if head_v is not None and head_v != head_dim:
            if not self.head_dim_v:
                yield f"head_dim_v {head_v} is not head_dim {head_dim}: values of another size are not declared"
            elif (self.max_head_dim is not None and head_v > self.max_head_dim) or head_v % self.head_dim_multiple:
                yield f"head_dim_v {head_v} is above {self.max_head_dim} or no multiple of {self.head_dim_multiple}"
        stored = p.get("kv_dtype")
        if stored is not None and stored != p.get("dtype", self.dtypes[0]):
            if stored not in self.kv_dtypes:
                yield f"kv_dtype {stored}: keys and values are of the dtype of the queries"
            elif p.get("direction") == "bwd":
                yield f"kv_dtype {stored}: forward only"
        if not self.gqa and p.get("heads_q") != p.get("heads_kv"):
            yield f"heads_q {p.get('heads_q')} != heads_kv {p.get('heads_kv')}: no grouped-query attention"

    def _mask_reasons(self, p: Problem) -> Iterable[str]:
        mask = mask_kind(p)
        if mask is not None and mask not in self.masks:
            yield f"no {mask} mask" if mask in MASKS else f"mask {mask!r} is not one of {', '.join(MASKS)}"
        if p.get("window") is not None and not self.window:
            yield "no sliding window"
        if p.get("softcap") is not None and not self.softcap:
            yield "no softcap"
        alignment = str(p.get("causal_alignment") or "bottom_right")
        pairs = lengths(p)
        if p.get("causal") and alignment not in self.alignments and any(q != k for q, k in pairs):
            yield f"causal_alignment {alignment} is not computed where q_len != kv_len"
        if not self.masked_rows and has_masked_rows(p):
            yield "rows that see no key are undefined in this backend"
        if not self.empty and any(q == 0 or k == 0 for q, k in pairs):
            yield "zero-length sequences"


@dataclass(frozen=True)
class Capabilities:
    """Support per kind of device (``cpu``, ``cuda``). A device that is not named is not supported."""

    support: Mapping[str, Support]

    @property
    def devices(self) -> tuple[str, ...]:
        """Kinds of device, in the order declared."""
        return tuple(self.support)

    def unsupported(self, problem: Problem, device: str) -> str | None:
        """Why ``problem`` cannot run on ``device`` ("cpu", "cuda", "cuda:1"), or None where it can."""
        support = self.support.get(device_kind(device))
        if support is None:
            return f"runs on {' and '.join(self.devices) or 'no device'} only, not on {device_kind(device)}"
        return support.unsupported(problem)


#: For backends that declare nothing: all is tried, and the correctness gate judges.
UNDECLARED = Capabilities(
    {
        d: Support(masks=MASKS, window=True, softcap=True, kv_dtypes=(*DTYPES, *STORED), head_dim_v=True)
        for d in ("cpu", "cuda")
    },
)


@dataclass(frozen=True)
class Backend:
    """An implementation of one or more operations.

    ``operations`` maps operation -> "module:function"; ``probe`` is "module:function" of a function that
    takes the device, returns a version and raises whatever it likes when the backend cannot be used.
    ``limits`` narrows the capabilities for single operations. ``broken`` marks a backend whose declaration
    itself could not be loaded.
    """

    name: str
    operations: Mapping[str, str]
    capabilities: Capabilities = UNDECLARED
    summary: str = ""
    install: str | None = None
    probe: str | None = None
    limits: Mapping[str, Capabilities] = field(default_factory=dict)
    broken: str | None = None

    def unsupported(self, operation: str, problem: Problem, device: str) -> str | None:
        """Why this backend cannot run ``operation`` on ``problem`` and ``device``, or None."""
        if operation not in self.operations:
            return self.broken or f"no {operation}; it has {', '.join(self.operations) or 'no operation'}"
        return self.limits.get(operation, self.capabilities).unsupported(problem, device)

    def availability(self, device: str = "cpu") -> Availability:
        """Load everything this backend needs. Whatever is raised becomes the reason; only Ctrl-C passes."""
        if self.broken is not None:
            return Availability(False, self.broken, remedy=self.install)
        kind = device_kind(device)
        if kind not in self.capabilities.support:
            reason = f"runs on {' and '.join(self.capabilities.devices)} only, not on {kind}"
            return Availability(False, reason, remedy=self.install)
        try:
            version = resolve(self.probe)(device) if self.probe else None
            for operation in self.operations:
                self.load(operation)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            remedy = getattr(error, "remedy", None) or self.install
            return Availability(False, describe(error), remedy=remedy)
        return Availability(True, version=None if version is None else str(version))

    def load(self, operation: str) -> Callable[..., Any]:
        """The function of an operation. Raises :class:`Unsupported` where there is none."""
        if operation not in self.operations:
            raise Unsupported(f"backend {self.name}: {self.unsupported(operation, {}, 'cpu')}")
        return resolve(self.target(operation))

    def target(self, operation: str) -> str:
        """ "module:function" that an operation runs: the declared one, or a fault that was asked for."""
        return faults.target(self.name, operation, self.operations[operation])


def resolve(target: str) -> Callable[..., Any]:
    """Import "package.module:attribute". Raises what the import raises."""
    module, colon, attribute = target.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"{target!r} is not of the form package.module:function")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{target} is {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def describe(error: BaseException) -> str:
    """One line that names the exception, for whatever was raised, even if its own text cannot be made."""
    name = type(error).__name__
    try:
        text = " ".join(str(error).split())
    except BaseException:
        text = ""
    if isinstance(error, Unavailable) and text:
        return text[:400]
    return f"{name}: {text}"[:400] if text else name


def device_kind(device: str) -> str:
    """ "cuda:1" -> "cuda"."""
    return device.partition(":")[0]


def mask_kind(problem: Problem) -> str | None:
    """Kind of the ``mask`` parameter, "bool" or "additive"; what follows a ":" is a pattern, not a kind."""
    mask = problem.get("mask")
    return None if mask in (None, False, "", "none") else str(mask).partition(":")[0]


def lengths(problem: Problem) -> list[tuple[int, int]]:
    """(q_len, kv_len) of every sequence; from ``q_lens``/``kv_lens`` where given."""
    if problem.get("q_lens") is not None and problem.get("kv_lens") is not None:
        q, k = (_numbers(str(problem[name]), name) for name in ("q_lens", "kv_lens"))
        if len(q) != len(k):
            raise ValueError(f"q_lens has {len(q)} sequences and kv_lens {len(k)}")
        return list(zip(q, k, strict=True))
    q_len, kv_len = _int(problem, "q_len"), _int(problem, "kv_len")
    return [] if q_len is None or kv_len is None else [(q_len, kv_len)]


def has_masked_rows(problem: Problem) -> bool:
    """Whether some query may see no key: short K/V under a bottom-right mask, or a mask that may do it."""
    bottom_right = str(problem.get("causal_alignment") or "bottom_right") == "bottom_right"
    window, mask = problem.get("window"), str(problem.get("mask") or "")
    if mask.endswith(":masked_rows") or (mask.endswith(":padding") and window is not None):
        return True
    for q_len, kv_len in lengths(problem):
        if q_len and not kv_len:
            return True
        if problem.get("causal") and bottom_right and q_len > kv_len:
            return True
        # Top-left, a window ends before the last queries once they stand window or more past the last key.
        if window is not None and not bottom_right and q_len - kv_len >= int(str(window)):
            return True
    return False


def _int(problem: Problem, name: str) -> int | None:
    value = problem.get(name)
    return None if value is None else int(value)


def _numbers(text: str, name: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise ValueError(f"{name} must be whole numbers with commas between, not {text!r}") from error
