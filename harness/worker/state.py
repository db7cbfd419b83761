"""State of the process that outlives a case: what a backend leaves changed would be measured in all later ones.

The server reads it before and after each case. A difference is named in the measurement, and the worker retires, for
not everything can be put back. Where the difference touches timing, the case's own timing is not trusted either: it
would depend on which case came first.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.variables import KEYED

_Read = Callable[[], object]

#: Longest text of one value.
_SHORT = 80

#: Variables that libraries set for themselves when they are first used; new ones of these names are no news.
_HARMLESS_VARIABLES = (
    "TORCHINDUCTOR_CACHE_DIR", "_TORCHINDUCTOR_", "TRITON_CACHE_DIR", "TRITON_HOME", "CUDA_MODULE_LOADING",
    "FLASHINFER_", "XFORMERS_",
)  # fmt: skip

# Helpers that libraries start once and keep.
_HARMLESS_CHILDREN = ("_inductor/compile_worker", "_inductor.compile_worker", "multiprocessing.resource_tracker")
_HARMLESS_THREADS = ("torch", "triton", "concurrent.", "multiprocessing", "tqdm")

#: Expressions below ``torch`` whose value changes what is computed or how fast.
_TORCH = (
    "get_num_threads()", "get_default_dtype()", "get_default_device()", "is_grad_enabled()",
    "is_inference_mode_enabled()", "is_autocast_enabled('cpu')", "is_autocast_enabled('cuda')",
    "is_anomaly_enabled()", "are_deterministic_algorithms_enabled()",
    "is_deterministic_algorithms_warn_only_enabled()", "get_float32_matmul_precision()",
    "utils.deterministic.fill_uninitialized_memory", "backends.fp32_precision", "backends.cuda.matmul.fp32_precision",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction", "backends.cuda.matmul.allow_fp16_accumulation",
    "backends.cuda.flash_sdp_enabled()", "backends.cuda.mem_efficient_sdp_enabled()",
    "backends.cuda.math_sdp_enabled()", "backends.cuda.cudnn_sdp_enabled()",
    "backends.cuda.fp16_bf16_reduction_math_sdp_allowed()", "backends.cuda.preferred_linalg_library()",
    "backends.cuda.preferred_blas_library()", "backends.cudnn.enabled", "backends.cudnn.benchmark",
    "backends.cudnn.benchmark_limit", "backends.cudnn.deterministic", "backends.cudnn.fp32_precision",
    "backends.cudnn.conv.fp32_precision", "backends.cudnn.rnn.fp32_precision", "backends.mkldnn.enabled",
    "backends.mkldnn.deterministic", "backends.mkldnn.fp32_precision", "backends.mkldnn.matmul.fp32_precision",
    "backends.quantized.engine", "_C._len_torch_function_stack()", "_C._len_torch_dispatch_stack()",
)  # fmt: skip
#: Read only where CUDA is in use: asking would start it.
_CUDA = ("cuda.current_device()", "cuda.current_stream()", "cuda.get_sync_debug_mode()")

#: Modules whose functions must stay what they were; new names are added by lazy imports and are no news.
_PATCHED = ("time", "builtins", "os", "gc", "math", "torch.nn.functional")


@dataclass(frozen=True)
class Change:
    """One difference. ``timing``: numbers taken since cannot be trusted; ``retire``: the worker must be replaced."""

    text: str
    timing: bool = False
    retire: bool = True


@dataclass(frozen=True)
class State:
    """What the process was like. ``plain`` and ``timing`` map names to values that must not change."""

    plain: Mapping[str, object]
    timing: Mapping[str, object]
    variables: Mapping[str, str]
    path: tuple[str, ...]
    recursion_limit: int
    filters: tuple[Any, ...]
    modules: Mapping[str, Mapping[str, object]]
    children: Mapping[int, str]
    threads: Mapping[int, str]


def read_state() -> State:
    """The state now; takes well below a millisecond."""
    return State(
        plain=_values(_PLAIN) | _signals() | _limits(),
        timing=_values(_TIMING) | _torch(),
        variables=dict(os.environ),
        path=tuple(map(str, sys.path)),
        recursion_limit=sys.getrecursionlimit(),
        filters=tuple(warnings.filters),
        modules={name: dict(vars(sys.modules[name])) for name in _PATCHED if name in sys.modules},
        children=_children(),
        threads={id(t): t.name for t in threading.enumerate() if not _is_harmless_thread(t)},
    )


def changes(before: State, after: State) -> list[Change]:
    """What differs, as a reader of the measurement needs it. Puts back the filters of warnings.

    Filters are put back because imports add to them all the time, and one that turns warnings into errors would
    break later cases.
    """
    found = [
        Change(f"{name}: {_short(old)} -> {_short(values[name])}", timing)
        for kind, values, timing in ((before.timing, after.timing, True), (before.plain, after.plain, False))
        for name, old in kind.items()
        if name in values and not _same(old, values[name])
    ]
    found += _changed_variables(before.variables, after.variables)
    if after.path[: len(before.path)] != before.path:
        found.append(Change(f"sys.path: {_path_difference(before.path, after.path)}"))
    if after.recursion_limit < before.recursion_limit:
        found.append(Change(f"recursion limit: {before.recursion_limit} -> {after.recursion_limit}"))
    if after.filters != before.filters:
        if any(f[0] == "error" for f in after.filters if f not in before.filters):
            found.append(Change("warnings were made errors (put back)", retire=False))
        warnings.filters[:] = list(before.filters)  # type: ignore[index]
        getattr(warnings, "_filters_mutated", lambda: None)()
    for module, old_names in before.modules.items():
        names = after.modules.get(module, {})
        patched = sorted(n for n, old in old_names.items() if n[:2] != "__" and names.get(n) is not old)
        found += [Change(f"{module}.{n} was replaced", timing=True) for n in patched[:8]]
    started = [f"{name} (pid {pid})" for pid, name in after.children.items() if pid not in before.children]
    if started:
        found.append(Change(f"processes left running: {', '.join(started[:5])}"))
    threads = [_short(name) for key, name in after.threads.items() if key not in before.threads]
    if threads:
        found.append(Change(f"threads left running: {', '.join(threads[:5])}"))
    return found


def _same(old: object, new: object) -> bool:
    if old is new:
        return True
    try:
        return bool(old == new)
    except Exception:  # values of others may have any comparison
        return False


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHORT else text[: _SHORT - 3] + "..."


def _attempt(read: _Read) -> object:
    try:
        return read()
    except Exception as error:
        return f"cannot be read ({type(error).__name__})"


def _values(reads: Mapping[str, _Read]) -> dict[str, object]:
    return {name: _attempt(read) for name, read in reads.items()}


def _umask() -> str:
    mask = os.umask(0o077)
    os.umask(mask)
    return oct(mask)


def _descriptor(number: int) -> _Read:
    def read() -> object:
        try:
            info = os.fstat(number)
        except OSError:
            return "closed"
        return (info.st_dev, info.st_ino)

    return read


def _stream(name: str) -> _Read:
    def read() -> object:
        stream = getattr(sys, name, None)
        return "closed" if getattr(stream, "closed", False) else f"{type(stream).__name__} at {id(stream):x}"

    return read


def _affinity() -> object:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _timers() -> object:
    kinds = [getattr(signal, n) for n in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF") if hasattr(signal, n)]
    return "none" if not any(any(signal.getitimer(k)) for k in kinds) else "running"


_PLAIN: dict[str, _Read] = {
    "working folder": os.getcwd,
    "umask": _umask,
    "descriptor 0": _descriptor(0),
    "descriptor 1": _descriptor(1),
    "descriptor 2": _descriptor(2),
    "sys.stdout": _stream("stdout"),
    "sys.stderr": _stream("stderr"),
    "sys.stdin": _stream("stdin"),
    "sys.excepthook": lambda: id(sys.excepthook),
    "sys.meta_path": lambda: [id(f) for f in sys.meta_path][:1],  # the first finder pins what is measured
    "faulthandler": faulthandler.is_enabled,
}

_TIMING: dict[str, _Read] = {
    "processors": _affinity,
    "priority": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "timers": _timers,
    "garbage collector": lambda: (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
    "switch interval": sys.getswitchinterval,
    "tracing": lambda: (sys.gettrace() is not None, sys.getprofile() is not None),
}


def _signals() -> dict[str, object]:
    """Handlers set from Python, and masks of those blocked, ignored and caught as the system sees them."""
    found: dict[str, object] = {}
    for number in signal.valid_signals():
        found[f"handler of {_signal_name(number)}"] = _attempt(lambda n=number: signal.getsignal(n))  # type: ignore[misc]
    with contextlib.suppress(OSError), Path("/proc/self/status").open("rb") as file:
        for line in file:
            if line.startswith((b"SigBlk", b"SigIgn", b"SigCgt")):
                name, _, mask = line.partition(b":")
                found[f"mask {name.decode()}"] = mask.strip().decode()
    return found


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _limits() -> dict[str, object]:
    names = [n for n in dir(resource) if n.startswith("RLIMIT_")]
    return {n: _attempt(lambda n=n: resource.getrlimit(getattr(resource, n))) for n in names}  # type: ignore[misc]


def _torch() -> dict[str, object]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    names = list(_TORCH)
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and _attempt(cuda.is_initialized) is True:
        names += _CUDA
    found: dict[str, object] = {}
    for name in names:
        with contextlib.suppress(Exception):  # this version of torch has none, or it cannot be asked
            found[f"torch.{name}"] = eval(_compiled(name), {"torch": torch})
    return found


def _compiled(name: str, _cache: dict[str, Any] = {}) -> Any:  # noqa: B006  (a cache)
    if name not in _cache:
        _cache[name] = compile(f"torch.{name}", "<state>", "eval")
    return _cache[name]


def _changed_variables(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    found = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old == new or (old is None and name.startswith(_HARMLESS_VARIABLES)):
            continue
        relevant = name.startswith(KEYED)
        # A new variable that no numeric library reads is the backend's own affair.
        found.append(Change(_variable_text(name, old, new), timing=relevant, retire=relevant or old is not None))
    return found


def _variable_text(name: str, old: str | None, new: str | None) -> str:
    """Values are told only of variables that are known to hold no secret."""
    if not name.startswith(KEYED):
        return f"variable {name}: {'set' if old is None else 'removed' if new is None else 'changed'}"
    return f"variable {name}: {_short(old)} -> {_short(new)}"


def _path_difference(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    added = [p for p in after if p not in before]
    gone = [p for p in before if p not in after]
    parts = [
        f"{word} {_short(paths)}" for word, paths in (("added before others:", added), ("removed:", gone)) if paths
    ]
    return "; ".join(parts) or "order changed"


def _children() -> dict[int, str]:
    """Living processes that this one started, or that were orphaned to its supervisor."""
    found: dict[int, str] = {}
    pids: list[int] = []
    with contextlib.suppress(ChildProcessError, AttributeError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # raises where there is none, which is cheap
        for folder in Path("/proc/self/task").glob("[0-9]*"):
            pids += _listed(folder / "children")
    supervisor = os.getppid()
    pids += [p for p in _listed(Path(f"/proc/{supervisor}/task/{supervisor}/children")) if p != os.getpid()]
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            name, _, rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").partition("(")[2].rpartition(")")
            if rest.split()[0] not in "ZX" and not any(h in command for h in _HARMLESS_CHILDREN):
                found[pid] = name
    return found


def _listed(path: Path) -> list[int]:
    try:
        return [int(p) for p in path.read_text().split()]
    except (OSError, ValueError):
        return []


def _is_harmless_thread(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)
    modules = (getattr(target, "__module__", None) or "", type(thread).__module__ if target is None else "")
    return thread is threading.main_thread() or any(m.startswith(_HARMLESS_THREADS) for m in modules if m)
