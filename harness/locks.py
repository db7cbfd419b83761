"""Host locks: one sweep, and one timed case at a time, per device.

Locks are ``flock`` on files of the runtime folder, so the kernel releases them when their holder dies. The file
names pid and purpose of the holder. A process forked by the holder shares the lock; the worker therefore never
outlives its session's children.
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
    """Held for a whole sweep. A second sweep raises :class:`InfrastructureError` naming the holder's pid."""
    with _hold(f"sweep-{physical_device(device)}", purpose, wait_s, f"a sweep on {device}"):
        yield


@contextlib.contextmanager
def device_lock(device: str, purpose: str, *, wait_s: float | None = None) -> Iterator[None]:
    """Held while one case is timed. Waits without limit by default, since its holders are bounded by timeouts."""
    with _hold(f"device-{physical_device(device)}", purpose, wait_s, f"timing on {device}"):
        yield


@contextlib.contextmanager
def file_lock(path: Path, purpose: str, *, wait_s: float | None = None, what: str = "") -> Iterator[None]:
    """``flock`` on ``path``; pid and purpose stand in the file while it is held. ``wait_s`` None waits for ever."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InfrastructureError(f"cannot open lock {path}: {error.strerror}") from None
    try:
        if not _acquire(fd, wait_s):
            raise InfrastructureError(
                f"{what or path.name} is already going on: held by {holder(path)}; wait for it or end it"
            )
        _describe(fd, {"pid": os.getpid(), "purpose": purpose})
        try:
            yield
        finally:
            _describe(fd, None)
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


def _hold(name: str, purpose: str, wait_s: float | None, what: str) -> contextlib.AbstractContextManager[None]:
    safe = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
    return file_lock(runtime_dir() / f"{safe}.lock", purpose, wait_s=wait_s, what=what)


def _acquire(fd: int, wait_s: float | None) -> bool:
    if wait_s is None:
        fcntl.flock(fd, fcntl.LOCK_EX)
        return True
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        else:
            return True


def _describe(fd: int, record: dict[str, object] | None) -> None:
    with contextlib.suppress(OSError):  # a full disk must not cost the lock, only its label
        os.ftruncate(fd, 0)
        if record is not None:
            os.pwrite(fd, json.dumps(record).encode(), 0)
