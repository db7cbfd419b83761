"""Standard streams, the same for every command."""

from __future__ import annotations

import contextlib
import io
import sys


def readable_streams() -> None:
    """UTF-8 whatever the locale says; what a terminal cannot show is escaped rather than fatal."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(ValueError, OSError):
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")
