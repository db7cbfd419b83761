"""A cache of results in two tiers whose key is the version of everything that a result depends on.

Key: ruler version, environment hash, hash of the kernels, entity and parameters, as canonical JSON and hashed whole, so
that two different keys are never the same text whatever separators the values hold.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.model import Params, content_key


@dataclass(frozen=True)
class Version:
    """What results of one age share."""

    ruler: str
    environment: str
    kernels: str


def key_of(version: Version, entity: str, params: Params) -> str:
    """Injective in all of its parts; the order of ``params`` does not matter, the types of values do."""
    return content_key([version.ruler, version.environment, version.kernels], entity, dict(params))


def reported_key(version: str, entity: str, params: Params) -> str:
    """The incident's key: parts joined with ``:``, parameters sorted, unescaped. Kept to show that it collides."""
    return ":".join([version, entity, *(f"{k}={v}" for k, v in sorted(params.items()))])


Warm = Iterable[tuple[str, Params, Callable[[], Any]]]


class Cache:
    """Memory (``size`` entries, least recently used go first) before files under ``folder``. Values are JSON.

    Entries of another version are never read: their keys differ. :meth:`publish` moves to a new version, drops the
    memory tier and the files of older versions, and computes what is to be ready before the first reader.
    """

    def __init__(self, folder: Path, version: Version, size: int = 1024) -> None:
        self._folder, self._version, self._size = folder, version, size
        self._memory: OrderedDict[str, Any] = OrderedDict()
        self.hits = {"memory": 0, "files": 0}
        self.misses = 0

    @property
    def version(self) -> Version:
        """The version that is read and written now."""
        return self._version

    def get(self, entity: str, params: Params, compute: Callable[[], Any]) -> Any:
        """The value, from memory, from files or from ``compute``."""
        key = key_of(self._version, entity, params)
        if key in self._memory:
            self._memory.move_to_end(key)
            self.hits["memory"] += 1
            return self._memory[key]
        path = self._path(key)
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            self.hits["files"] += 1
        except (OSError, ValueError):  # a half-written or spoilt file is as good as none
            value = compute()
            self.misses += 1
            self._write(path, value)
        self._keep(key, value)
        return value

    def publish(self, version: Version, warm: Warm = ()) -> None:
        """Results of ``version`` from now on; ``warm`` is computed first, before anybody asks."""
        old = self._folder_of(self._version)
        self._version = version
        self._memory.clear()
        for entity, params, compute in warm:
            self.get(entity, params, compute)
        if old != self._folder_of(version) and old.is_dir():
            for path in old.iterdir():
                path.unlink(missing_ok=True)
            old.rmdir()

    def invalidate(self) -> None:
        """Forget all of this version, as an ingest does that changes what results would be."""
        self._memory.clear()
        folder = self._folder_of(self._version)
        for path in folder.iterdir() if folder.is_dir() else ():
            path.unlink(missing_ok=True)

    def _keep(self, key: str, value: Any) -> None:
        self._memory[key] = value
        while len(self._memory) > self._size:
            self._memory.popitem(last=False)

    def _folder_of(self, version: Version) -> Path:
        return self._folder / content_key([version.ruler, version.environment, version.kernels])[:16]

    def _path(self, key: str) -> Path:
        return self._folder_of(self._version) / f"{key}.json"

    @staticmethod
    def _write(path: Path, value: Any) -> None:
        """All or nothing, whoever else writes the same."""
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file)
        Path(name).replace(path)
