"""Bundles with the standard library only: what they begin with, their lines, and how far one has grown.

:mod:`harness.bundle` reads for the store, strictly and fast; this reads beside a sweep, on bare images and in asv's
children.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from harness.model import Case, InputError, Run, Status
from harness.model.serde import from_plain

T = TypeVar("T")


def lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(``file:line``, record) of every line; nothing for a file that does not exist, and a cut last line ends it."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{path}: cannot read this bundle: {error.strerror}") from None
    with file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                if not line.endswith(b"\n"):
                    return  # cut off while it was written
                record = None
            if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
                raise InputError(f"{path}:{number}: not a line of a bundle; name another file")
            yield f"{path}:{number}", record


def record_at(place: str, cls: type[T], plain: object) -> T:
    """A record out of a line. InputError begins with ``place``."""
    if isinstance(plain, dict):
        plain = {k: v for k, v in plain.items() if k not in ("kind", "schema")}
    try:
        return from_plain(cls, plain)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def head_of(path: Path) -> Run | None:
    """The run that a bundle begins with; None for no file, an empty one, and whatever begins otherwise."""
    try:
        with path.open("rb") as file:
            first = file.readline()
        record = json.loads(first) if first.endswith(b"\n") else None
        return record_at(str(path), Run, record) if isinstance(record, dict) and record.get("kind") == "run" else None
    except (OSError, ValueError, InputError):
        return None


class BundleCounter:
    """How far a growing bundle is. Each :meth:`look` reads only what was appended since the last one.

    ``done`` counts the cases that have a record, ``measured`` those that ran or tried to, ``last`` is the case of
    the newest record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last: Case | None = None
        self._offset = 0
        self._measured: dict[str, bool] = {}

    @property
    def done(self) -> int:
        """Cases with a record."""
        return len(self._measured)

    @property
    def measured(self) -> int:
        """Cases with a record other than *deselected*."""
        return sum(self._measured.values())

    def look(self) -> BundleCounter:
        """Take in what was appended; a line that is still being written waits for the next look."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return self
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.split(b"\n"):
            self._take(line)
        return self

    def _take(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            if record["kind"] != "measurement":
                return
            case, status = from_plain(Case, record["case"]), record["status"]
        except (ValueError, KeyError, TypeError, InputError):
            return  # counting must not end a sweep; ingest names what is wrong with a line
        self.last = case
        ran = status != Status.DESELECTED
        self._measured[case.key] = self._measured.get(case.key, False) or ran
