"""Reading what users name, with a limit, so that no file (a device, a pipe that never ends) takes all memory."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from .terms import InputError

#: A table of measurements of this size is larger than anything these commands are for.
LIMIT_BYTES = 1 << 30


def read_bounded(path: str, limit: int = LIMIT_BYTES) -> bytes:
    """Content of a file; ``-`` is standard input. InputError names the file, and the limit where it is passed."""
    name = "<stdin>" if path == "-" else path
    try:
        if path == "-":
            data = sys.stdin.buffer.read(limit + 1)
        else:
            if stat.S_ISFIFO(Path(path).stat().st_mode):
                print(f"{name}: waiting for a writer", file=sys.stderr)
            with Path(path).open("rb") as file:
                data = file.read(limit + 1)
    except FileNotFoundError:
        raise InputError(f"{name}: no such file") from None
    except (OSError, ValueError) as err:
        raise InputError(f"{name}: cannot be read: {getattr(err, 'strerror', None) or err}") from None
    except MemoryError:
        raise InputError(f"{name}: does not fit into memory; split the file") from None
    if len(data) > limit:
        raise InputError(f"{name}: more than {limit // 2**20} MiB; split the file")
    return data


def read_text(path: str, limit: int = LIMIT_BYTES) -> str:
    """The same as UTF-8 text, a byte-order mark dropped. InputError names the line of a byte that is none."""
    name = "<stdin>" if path == "-" else path
    data = read_bounded(path, limit)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        line = data.count(b"\n", 0, err.start) + 1
        raise InputError(f"{name}:{line}: not UTF-8 (byte {data[err.start]:#04x}); convert the file first") from None
