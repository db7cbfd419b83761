"""Results from files and folders into the store, whatever wrote them. One reader per format joins :data:`READERS`."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from db.engine import Store, open_store

from .bundle import read_bundle
from .ingest import Source, ingest
from .model import InputError

#: A head as long as this tells what a file is.
_HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class Reader:
    """How one format is recognised and read.

    ``sniff`` looks at a file or folder and says whether it is of the format; it must not raise for what is not.
    ``pattern`` is what such files are called in folders that hold other things too. ``read`` gives the records.
    """

    name: str
    pattern: str
    sniff: Callable[[Path], bool]
    read: Callable[[Path], Source]


def is_bundle(path: Path) -> bool:
    """Whether a file begins as a bundle does: with an object that says its ``kind``. An empty one may be one."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:
        return False
    first, newline, _ = head.partition(b"\n")
    if not newline:  # longer than the head, or cut off: what is there must look like one
        return not head or (head[:1] == b"{" and re.search(rb'"kind"\s*:', head) is not None)
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        return re.match(rb'\{\s*"kind"\s*:', first) is not None
    return isinstance(record, dict) and "kind" in record


#: Every format that can be taken in; a new one is one module and one line here.
READERS = (Reader("attnwatch bundle", "*.jsonl", is_bundle, read_bundle),)


def import_paths(store: Store, paths: Sequence[Path]) -> dict[str, Any]:
    """Take every file of ``paths`` in one transaction: all of them or, where one is bad, none."""
    found = expand(paths)
    report = ingest(store, [reader.read(path) for path, reader in found])
    return {
        "files": [str(path) for path, _ in found],
        "taken": report.taken,
        "duplicates": report.duplicates,
        "dropped": report.dropped,
        "reasons": report.reasons,
        "runs": report.runs,
        "warnings": report.warnings,
    }


def check_paths(paths: Sequence[Path]) -> dict[str, Any]:
    """What :func:`import_paths` would say for an empty store; nothing outside a temporary folder is written."""
    with tempfile.TemporaryDirectory(prefix="attnwatch-check-") as folder, open_store(Path(folder) / "x.db") as store:
        return import_paths(store, paths)


def expand(paths: Sequence[Path]) -> list[tuple[Path, Reader]]:
    """What there is to read, each with its reader: files as given, and whatever readers claim below folders.

    InputError for a path that is not there, a file of no known format, and a folder that holds nothing known.
    """
    found: dict[Path, tuple[Path, Reader]] = {}
    for path in paths:
        if (reader := reader_of(path)) is not None:
            new = [(path, reader)]
        elif path.is_dir():
            new = _below(path)
            if not new:
                raise InputError(f"{path}: holds nothing that can be taken in; known are {_known()}")
        elif path.exists():
            raise InputError(f"{path}: not of a format that can be taken in; known are {_known()}")
        else:
            raise InputError(f"{path}: no such file or folder")
        for item in new:
            found.setdefault(item[0].resolve(), item)
    return list(found.values())


def reader_of(path: Path) -> Reader | None:
    """The first reader that claims ``path``."""
    return next((r for r in READERS if r.sniff(path)), None)


def _below(folder: Path) -> list[tuple[Path, Reader]]:
    found: list[tuple[Path, Reader]] = []
    for place, folders, files in os.walk(folder):
        here = Path(place)
        for name in sorted(folders):
            if (reader := _named(here / name)) is not None:
                found.append((here / name, reader))
                folders.remove(name)  # it is read whole
        folders.sort()
        found += [(here / name, r) for name in sorted(files) if (r := _named(here / name)) is not None]
    return found


def _named(path: Path) -> Reader | None:
    return next((r for r in READERS if fnmatchcase(path.name, r.pattern) and r.sniff(path)), None)


def _known() -> str:
    return ", ".join(f"{r.name} ({r.pattern})" for r in READERS)
