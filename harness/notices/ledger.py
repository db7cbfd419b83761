"""Which events were told: a small file beside the store, so that no restart tells one twice.

An event is claimed before it is sent and kept afterwards. Who dies in between leaves a claim, and a claim is not sent
again: better one notice lost, and said to be, than the same alarm every hour.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.model import InfrastructureError, InputError

_VERSION = 1
_FORMAT = "attnwatch notices"


class Ledger:
    """The file at ``path``; use it inside :meth:`held`, which keeps others out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.told: dict[str, str] = {}

    @contextlib.contextmanager
    def held(self) -> Iterator[Ledger]:
        """Alone with the file until the end. InputError where it holds something else."""
        try:
            lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as err:
            raise InputError(f"{self.path}: cannot be written: {err.strerror}; name another with --state") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.told = self._read()
            yield self
        finally:
            os.close(lock)

    def claim(self, keys: Iterable[str]) -> None:
        """These are about to be sent."""
        self._keep(dict.fromkeys(keys, "claimed"))

    def settle(self, keys: Iterable[str]) -> None:
        """These were sent."""
        self._keep(dict.fromkeys(keys, "sent"))

    def forget(self, keys: Iterable[str]) -> None:
        """These were not sent, or are over."""
        for key in keys:
            self.told.pop(key, None)
        self._write()

    @property
    def unsure(self) -> list[str]:
        """Claimed by somebody who died: perhaps sent, perhaps not."""
        return sorted(k for k, state in self.told.items() if state == "claimed")

    def _keep(self, more: dict[str, str]) -> None:
        self.told |= more
        self._write()

    def _read(self) -> dict[str, str]:
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as err:
            raise InputError(f"{self.path}: cannot be read as notices: {err}; move it away to begin anew") from None
        told = data.get("told") if isinstance(data, dict) and data.get("format") == _FORMAT else None
        if not isinstance(told, dict) or data.get("version") != _VERSION:
            raise InputError(f"{self.path}: no list of notices of version {_VERSION}; name another with --state")
        return {str(k): str(v) for k, v in told.items()}

    def _write(self) -> None:
        text = json.dumps({"format": _FORMAT, "version": _VERSION, "told": dict(sorted(self.told.items()))}, indent=1)
        try:
            with tempfile.NamedTemporaryFile(
                "w", dir=self.path.parent, prefix=f".{self.path.name}.", delete=False, encoding="utf-8"
            ) as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            Path(file.name).replace(self.path)
        except OSError as err:
            raise InfrastructureError(f"{self.path}: cannot be written: {err.strerror}") from None
