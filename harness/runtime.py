"""The per-user runtime folder: sockets, locks and logs of workers.

One fixed place per user and host, whatever the session: a cron job and a login shell must see the same locks,
which is why ``XDG_RUNTIME_DIR`` and ``TMPDIR`` are not followed. ``ATTNWATCH_RUNTIME_DIR`` moves it.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from harness.model import InfrastructureError

VARIABLE = "ATTNWATCH_RUNTIME_DIR"


def runtime_dir() -> Path:
    """Absolute path of the runtime folder, created with mode 0700.

    Raises :class:`InfrastructureError` when it cannot be made or written, or when somebody else could write it:
    a stranger's socket must never be taken for a worker.
    """
    path = _configured()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.lstat()
    except OSError as error:
        raise InfrastructureError(f"cannot use {path} as runtime folder: {error.strerror}; {_REMEDY}") from None
    if not stat.S_ISDIR(info.st_mode):
        raise InfrastructureError(f"runtime folder {path} is not a folder of its own; {_REMEDY}")
    if info.st_uid != os.getuid():
        raise InfrastructureError(f"runtime folder {path} belongs to user {info.st_uid}; {_REMEDY}")
    if info.st_mode & 0o077:
        raise InfrastructureError(f"runtime folder {path} is open to others; run `chmod 700 {path}`")
    if not os.access(path, os.W_OK | os.X_OK):
        raise InfrastructureError(f"runtime folder {path} is not writable; {_REMEDY}")
    return path


def _configured() -> Path:
    if configured := os.environ.get(VARIABLE):
        return Path(configured).absolute()
    base = Path("/tmp")
    return (base if base.is_dir() else Path(tempfile.gettempdir())) / f"attnwatch-{os.getuid()}"


_REMEDY = f"set {VARIABLE} to a folder that only you can write"
