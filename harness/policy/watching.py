"""A policy that may change while a sweep of hours is under way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.model import InputError

from .reading import read_policy
from .records import Policy

Signature = tuple[int, int, int] | None


class PolicyWatch:
    """Hands out what the file says now. A file that got wrong, or went away, leaves the last good policy in force and
    is told once through ``say``; one that is mended is taken."""

    def __init__(self, policy: Policy, say: Callable[[str], None] = lambda text: None) -> None:
        self._policy, self._say = policy, say
        self._seen: Signature = None
        self._told = ""

    def current(self) -> Policy:
        """The policy in force. Reads the file only where it changed; a policy without a file never does."""
        path = self._policy.path
        if path is None:
            return self._policy
        now = _signature(path)
        if now is not None and now == self._seen:
            return self._policy
        try:
            read = read_policy(path)
        except InputError as error:
            self._tell(f"the policy before stays in force: {error}")
        else:
            if read.version != self._policy.version:
                self._say(f"{path}: policy {self._policy.version} -> {read.version}")
            self._policy, self._told = read, ""
        self._seen = now
        return self._policy

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._say(text)
        self._told = text


def _signature(path: str) -> Signature:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
