"""What ``attnwatch doctor`` reports of a backend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackendReport:
    """Whether a backend can be used on this device, and if not why and how to get it."""

    name: str
    usable: bool
    reason: str | None = None
    version: str | None = None
    operations: tuple[str, ...] = ()
    remedy: str | None = None
