"""Watches the files that a worker runs, so that it never measures what is no longer there."""

from __future__ import annotations

import os
from pathlib import Path

from harness.hashing import kernels_location
from harness.model import InfrastructureError

from .identity import content_hash, ruler_hash, ruler_parts

_Signature = frozenset[tuple[str, int, int]]


class Sources:
    """Content of the pinned packages as the worker loaded them. ``pinned`` maps top-level names to places."""

    def __init__(self, pinned: dict[str, str], kernels_hash: str) -> None:
        self.kernels = Path(pinned["kernels"])
        self.kernels_hash = kernels_hash
        self._roots = {name: [Path(place)] for name, place in pinned.items()}
        self._roots["harness"] = ruler_parts()
        self._hashes = {name: content_hash(roots) for name, roots in self._roots.items()}
        self._hashes["harness"] = ruler_hash()
        self._signatures = {name: _signature(roots) for name, roots in self._roots.items()}

    def verify(self, imported: str | None) -> None:
        """Refuse kernels that are not the ones asked for. ``imported`` is the module's ``__file__``."""
        place = Path(imported).resolve().parent if imported else None
        if place != self.kernels:
            raise InfrastructureError(f"the worker imported kernels from {place}, but {self.kernels} was asked for")
        _, found = kernels_location([str(self.kernels.parent)])
        if found != self.kernels_hash:
            raise InfrastructureError(
                f"kernels at {self.kernels} have hash {found}, but {self.kernels_hash} was asked for; "
                "they changed while the worker started, so try again"
            )

    def changed(self) -> str:
        """Name of a pinned package whose files are no longer what was loaded; empty when all are."""
        for name, roots in self._roots.items():
            signature = _signature(roots)
            if signature == self._signatures[name]:
                continue
            try:
                same = content_hash(roots) == self._hashes[name]
            except OSError:  # a file went away between listing and reading
                same = False
            if not same:
                return name
            self._signatures[name] = signature
        return ""


def _signature(roots: list[Path]) -> _Signature:
    found: list[tuple[str, int, int]] = []
    for root in roots:
        if root.is_dir():
            _walk(str(root), found)
        elif root.exists():
            info = root.stat()
            found.append((str(root), info.st_mtime_ns, info.st_size))
    return frozenset(found)


def _walk(folder: str, found: list[tuple[str, int, int]]) -> None:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir():
            if entry.name != "__pycache__":
                _walk(entry.path, found)
        elif entry.name.endswith(".py"):
            info = entry.stat()
            found.append((entry.path, info.st_mtime_ns, info.st_size))
