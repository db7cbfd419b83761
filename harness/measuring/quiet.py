"""Keeping a library that writes to standard error at any log level quiet."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Sends descriptor 2 nowhere: the tracing library writes to it at each start and stop, at any log level."""
    try:
        kept = os.dup(2)
    except OSError:  # closed: nobody is disturbed
        yield
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
