"""Signals that end a command, the same for every command; below the commands and the measuring half alike."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP end a command as gently as Ctrl-C: what was measured is kept, children are ended.

    Schedulers of CI send the first, a terminal that closes the second. One that is ignored stays so: ``nohup`` asks
    for just that. Does nothing outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGHUP)}
    before = {s: handler for s, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for s in before:
            signal.signal(s, interrupt)
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
