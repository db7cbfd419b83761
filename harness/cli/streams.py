"""Standard streams, the same for every command."""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from pathlib import Path

from harness.model.terms import InputError


class _Closed(io.RawIOBase):
    """Standard input where there is none: reading says so."""

    def readable(self) -> bool:
        return True

    def readinto(self, _: object) -> int:
        raise OSError("standard input is closed")


def readable_streams() -> None:
    """UTF-8 whatever the locale says; what a terminal cannot show is escaped rather than fatal.

    InputError where standard output is closed, since an answer that goes nowhere must not look like one.
    """
    if sys.stdout is None:
        raise InputError("standard output is closed; send it to a file, or to /dev/null where it is not wanted")
    if sys.stderr is None:
        # print() would take standard output in its place, where JSON stands alone.
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_Closed()), encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(ValueError, OSError):
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def drop_unread() -> bool:
    """Send to /dev/null those of our two outputs whose reader went away; False where neither did."""
    poll = select.poll()
    for fd in (1, 2):
        poll.register(fd, 0)
    gone = [fd for fd, events in poll.poll(0) if events & (select.POLLERR | select.POLLHUP)]
    for fd in gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), fd)
    return bool(gone)
