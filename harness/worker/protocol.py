"""What client and worker say to each other: one JSON object per line, both ways.

A request is ``{"id": n, "op": name, ...}``. The worker answers with an optional ``{"id": n, "event": "started"}``
when it holds the device and begins, then with ``{"id": n, "result": ...}`` or ``{"id": n, "error": {...}}``,
whose ``kind`` is ``case`` (with ``status``), ``stale`` (another worker must be asked), ``input`` or ``infrastructure``.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.model import InputError, Status

Message = dict[str, Any]

#: Longest text of a detail that travels; a backend may raise an exception with megabytes in it.
MAX_TEXT = 8000
_MAX_LINE = 256 * 1024 * 1024
# sun_path holds 108 bytes on Linux and 104 on macOS, with the closing zero.
_MAX_SOCKET_PATH = 100


class CaseError(Exception):
    """A case could not be prepared or sampled; ``status`` and ``detail`` say how and why."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(f"{status.value}: {detail}")
        self.status = status
        self.detail = detail


class Disconnected(Exception):
    """The other side is gone."""


class Channel:
    """Lines of JSON over a connected stream socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()

    def send(self, message: Message) -> None:
        """Send one message. Raises :class:`Disconnected`, and ``ValueError`` for NaN or infinities."""
        data = json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        try:
            self.sock.settimeout(None)
            self.sock.sendall(data)
        except OSError as error:
            raise Disconnected(str(error)) from None

    def receive(self, deadline: float | None = None) -> Message:
        """Next message; ``deadline`` is on the monotonic clock. Raises ``TimeoutError`` or :class:`Disconnected`."""
        while (message := self.take()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            try:
                self.sock.settimeout(left)
                self.feed()
            except TimeoutError:
                raise
            except OSError as error:
                raise Disconnected(str(error)) from None
        return message

    def feed(self) -> None:
        """Read what has arrived. Raises :class:`Disconnected` at the end of the stream."""
        try:
            data = self.sock.recv(1 << 20)
        except ConnectionError as error:
            raise Disconnected(str(error)) from None
        if not data:
            raise Disconnected("connection closed")
        self._buffer += data
        if len(self._buffer) > _MAX_LINE:
            raise Disconnected("a line longer than any message")

    def take(self) -> Message | None:
        """A whole message out of what was read, or None. Raises :class:`InputError` for what is none."""
        end = self._buffer.find(b"\n")
        if end < 0:
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            message = json.loads(line)
        except ValueError as error:
            raise InputError(f"not a message: {error}") from None
        if not isinstance(message, dict):
            raise InputError("not a message: a JSON object is expected")
        return message

    def close(self) -> None:
        self.sock.close()


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """Address of a unix socket at ``path``, also where the path is longer than the system's limit."""
    text = str(path)
    if len(os.fsencode(text)) <= _MAX_SOCKET_PATH or sys.platform != "linux":
        yield text
        return
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)


def clean_text(text: str, limit: int = MAX_TEXT) -> str:
    """Text that any file, database or terminal takes: no control characters or lone surrogates, bounded length."""
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
    text = text.encode("utf-8", "replace").decode()
    return "".join(c if c in "\n\t" or (c.isprintable() or c == " ") else "\N{REPLACEMENT CHARACTER}" for c in text)
