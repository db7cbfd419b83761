"""Minds asv for a sweep: whatever becomes of the sweep's process, asv and all that it started end with it.

The parent holds the other end of a pipe; its end, by whatever cause, is the sign to end asv. This process adopts what
asv's descendants leave behind, and holds the sweep's lock (its descriptors were handed down) until none is left, so
that no other sweep measures beside them. Run as ``asv_minder.py LIFELINE LOCKS COMMAND...`` in a session of its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

from harness.locks import ENDING, describe
from harness.worker.boot import adopt_orphans, die_with_parent, kill_left

_POLL_S = 0.1
#: How long asv may take to put its results away.
_GRACE_S = 2.0


def main() -> None:
    """Start asv, wait for its end or for the parent's, exit as asv did."""
    lifeline, locks, *command = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # meant for the parent, whose end we follow
    adopt_orphans()
    asv = _start(command, [int(lifeline)])
    status = _wait(asv, int(lifeline))
    if status is None:
        _note_end([int(fd) for fd in locks.split(",") if fd])
        status = _end(asv)
        kill_left(asv)
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


def _start(command: list[str], not_theirs: list[int]) -> int:
    minder = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        die_with_parent(minder)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for fd in not_theirs:
            os.set_inheritable(fd, False)
        os.execv(command[0], command)
    finally:
        os._exit(127)


def _wait(asv: int, lifeline: int) -> int | None:
    """asv's wait status; None when the parent let go of us first. Reaps orphans."""
    while True:
        if (status := _reap(asv)) is not None:
            return status
        if select.select([lifeline], [], [], _POLL_S)[0] and not os.read(lifeline, 1):
            return None


def _reap(asv: int) -> int | None:
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == asv:
                found = status
            if pid == 0:
                break
    return found


def _end(asv: int) -> int:
    """Ask asv to end, then make it; its wait status."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(asv, signal.SIGINT)
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline:
        if (status := _reap(asv)) is not None:
            return status
        time.sleep(_POLL_S / 10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(asv, signal.SIGKILL)
    return os.waitpid(asv, 0)[1]


def _note_end(locks: list[int]) -> None:
    """Tell who meets the lock what goes on."""
    for fd in locks:
        describe(fd, {"pid": os.getpid(), "purpose": ENDING})
