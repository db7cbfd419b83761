"""The worker's own way to its log: backends close or replace ``sys.stderr``, and descriptor 2 with it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from harness.model import AttnwatchError

from .protocol import clean_text

#: Above what a backend that closes "all" low descriptors, or opens many, gets at.
_LOWEST = 64

_fd = 2


def keep_own() -> None:
    """Take a copy of descriptor 2, which leads to the log now."""
    global _fd
    _fd = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, _LOWEST)


def descriptor() -> int:
    """The copy."""
    return _fd


def write(text: str) -> None:
    """One entry, with the time; whatever ``text`` holds, it stays text."""
    with contextlib.suppress(OSError):
        os.write(_fd, f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {clean_text(text)}\n".encode())


def text_of(error: BaseException) -> str:
    """``Class: message``; an exception whose own text raises is named all the same."""
    try:
        message = str(error)
    except BaseException:
        message = "(its text cannot be had)"
    if isinstance(error, AttnwatchError):
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
