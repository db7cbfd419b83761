"""From what a case raises to its status and a text for people; and a ceiling on what it may allocate."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

from harness.model import AttnwatchError, Status

#: Part of the memory still available that one case may take before its allocation fails.
MEMORY_SHARE = 0.9

_OUT_OF_MEMORY_TEXTS = ("can't allocate memory", "out of memory", "cannot allocate memory", "std::bad_alloc")


class CaseFailed(Exception):
    """A case that cannot be timed, with the status and the reason that its measurement carries."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(f"{status.value}: {detail}")
        self.status = status
        self.detail = detail


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says, in one of torch's many ways, that memory ran out."""
    names = {c.__name__ for c in type(error).__mro__}
    text = _text(error).lower()
    return bool(names & {"MemoryError", "OutOfMemoryError"}) or any(t in text for t in _OUT_OF_MEMORY_TEXTS)


def failure_of(error: BaseException, doing: str) -> CaseFailed:
    """Status and detail of an exception that a kernel raised while ``doing``; frees the frames it holds.

    NotImplementedError is the kernel's way of saying unsupported. KeyboardInterrupt is never handed in.
    """
    if isinstance(error, CaseFailed):
        return error
    text = _text(error)
    where = _innermost(error)
    release(error)
    if isinstance(error, NotImplementedError):
        return CaseFailed(Status.UNSUPPORTED, text or f"not implemented, raised {where}")
    if is_out_of_memory(error):
        return CaseFailed(Status.OUT_OF_MEMORY, f"{doing}: {text or type(error).__name__}")
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return CaseFailed(Status.CRASHED, f"{doing}: {said} (raised {where})")


@contextlib.contextmanager
def guarded(doing: str) -> Iterator[None]:
    """Turns whatever the block raises into :class:`CaseFailed`: kernels may raise anything, SystemExit too.

    Ctrl-C passes, and so does what is not the case's fault.
    """
    try:
        yield
    except (CaseFailed, AttnwatchError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise failure_of(error, doing) from None


def release(error: BaseException) -> None:
    """Drops the tensors that the tracebacks of ``error`` and of its causes keep alive."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        todo += [one.__cause__, one.__context__]
        if one.__traceback__ is not None:
            traceback.clear_frames(one.__traceback__)
            one.__traceback__ = None


def _text(error: BaseException) -> str:
    """First line of the message, shortened; torch appends C++ stacks."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # a message that cannot even be made must not hide the failure
        return ""
    return lines[0].strip()[:500] if lines else ""


def _innermost(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "outside Python"
    last = frames[-1]
    # The last two folders tell the file without telling where this machine keeps it.
    return f"in {last.name} at {'/'.join(Path(last.filename).parts[-3:])}:{last.lineno}"


def available_memory() -> int | None:
    """Bytes that can still be taken: the least of the system's and the control group's, None if unknown."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) << 10)
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # "max" is no number: no limit
            found.append(max(0, int(Path(limit).read_text()) - int(Path(used).read_text())))
    return min(found) if found else None


@contextlib.contextmanager
def memory_ceiling(share: float = MEMORY_SHARE) -> Iterator[None]:
    """Lets allocations beyond ``share`` of the memory available now fail, instead of the machine.

    Lowers the soft RLIMIT_DATA of this process and puts it back. Does nothing where there is no such limit.
    """
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        available, used = available_memory(), data_bytes()
    except (ImportError, AttributeError, OSError, ValueError):
        yield
        return
    if available is None or used is None:
        yield
        return
    limit = used + int(available * share)
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
        yield
    finally:
        with contextlib.suppress(ValueError, OSError):  # a kernel has lowered the hard limit
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def data_bytes() -> int | None:
    """What RLIMIT_DATA counts now: private writable memory, from /proc/self/statm (data + stack pages)."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
