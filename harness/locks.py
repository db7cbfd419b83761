"""Host locks: one sweep, and one timed case at a time, per device.

Locks are ``flock`` on files of the runtime folder, so the kernel releases them when their holder dies. The file
names pid and purpose of the holder. A process forked by the holder shares the lock; the worker therefore never
outlives its session's children. A sweep that lets another program measure for it hands the lock's descriptor down, so
that the lock lives as long as whatever measures.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.model import InfrastructureError
from harness.runtime import runtime_dir

_POLL_S = 0.01
#: How long to wait for what a dead holder left to end.
_DEAD_HOLDER_S = 20.0
#: How long to wait where a holder is just writing down who it is.
_UNSAID_S = 0.5

# Descriptors of the sweep locks that this process holds.
_sweeps: list[int] = []


#: Purpose of a holder that only ends what a sweep left.
ENDING = "ending what an interrupted sweep left"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock, as far as the file tells. ``pid`` is 0 when it says nothing readable."""

    pid: int
    purpose: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.purpose})" if self.pid else "another process"


def physical_device(device: str) -> str:
    """Name of the device that processes with different ``CUDA_VISIBLE_DEVICES`` agree on.

    ``cpu`` stays; ``cuda`` is ``cuda:0``; with ``CUDA_VISIBLE_DEVICES=3`` that is ``cuda:3``.
    """
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return kind
    visible = [v.strip() for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v.strip()]
    number = int(index) if index.isdigit() else 0
    return f"cuda:{visible[number] if number < len(visible) else number}"


@contextlib.contextmanager
def sweep_lock(device: str, purpose: str, *, wait_s: float = 0.0) -> Iterator[None]:
    """Held for a whole sweep. A second sweep raises :class:`InfrastructureError` naming the holder's pid.

    Where the holder itself is dead, what it left is being ended: that is waited for.
    """
    with _hold(f"sweep-{physical_device(device)}", purpose, wait_s, f"a sweep on {device}") as fd:
        _sweeps.append(fd)
        try:
            yield
        finally:
            _sweeps.remove(fd)


def sweep_descriptors() -> list[int]:
    """Descriptors of the sweep locks held here, for a child that is to hold them too."""
    return list(_sweeps)


@contextlib.contextmanager
def device_lock(device: str, purpose: str, *, wait_s: float | None = None) -> Iterator[None]:
    """Held while one case is timed. Waits without limit by default, since its holders are bounded by timeouts."""
    with _hold(f"device-{physical_device(device)}", purpose, wait_s, f"timing on {device}"):
        yield


@contextlib.contextmanager
def file_lock(path: Path, purpose: str, *, wait_s: float | None = None, what: str = "") -> Iterator[int]:
    """``flock`` on ``path``, given as its descriptor; pid and purpose stand in the file while it is held.

    ``wait_s`` None waits for ever.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InfrastructureError(f"cannot open lock {path}: {error.strerror}") from None
    try:
        if not _acquire(fd, path, wait_s):
            raise InfrastructureError(
                f"{what or path.name} is already going on: held by {holder(path)}; wait for it or end it"
            )
        describe(fd, {"pid": os.getpid(), "purpose": purpose})
        try:
            yield fd
        finally:
            describe(fd, None)
            # Explicit: a forked child may still have the descriptor open.
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def holder(path: Path) -> Holder:
    """What the lock's file says of its holder."""
    try:
        record = json.loads(path.read_text())
        return Holder(int(record["pid"]), str(record["purpose"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Holder(0, "")


def _patience(path: Path) -> float:
    """Seconds to wait at least for a lock whose holder has more to say, or is no sweep any more."""
    found = holder(path)
    if not found.pid:
        return _UNSAID_S
    if found.purpose == ENDING:
        return _DEAD_HOLDER_S
    try:
        os.kill(found.pid, 0)
    except ProcessLookupError:
        return _DEAD_HOLDER_S
    except OSError:  # somebody else's process, but alive
        pass
    return 0.0


def _hold(name: str, purpose: str, wait_s: float | None, what: str) -> contextlib.AbstractContextManager[int]:
    safe = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
    return file_lock(runtime_dir() / f"{safe}.lock", purpose, wait_s=wait_s, what=what)


def _acquire(fd: int, path: Path, wait_s: float | None) -> bool:
    if wait_s is None:
        fcntl.flock(fd, fcntl.LOCK_EX)
        return True
    start = time.monotonic()
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - start
            if waited >= wait_s and waited >= _patience(path):
                return False
            time.sleep(_POLL_S)
        else:
            return True


def describe(fd: int, record: dict[str, object] | None) -> None:
    """Write pid and purpose of a lock's holder into its file; None empties it."""
    with contextlib.suppress(OSError):  # a full disk must not cost the lock, only its label
        os.ftruncate(fd, 0)
        if record is not None:
            os.pwrite(fd, json.dumps(record).encode(), 0)
