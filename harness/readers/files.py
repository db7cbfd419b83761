"""Files that others wrote: bounded, regular, inside the folder that was named, and JSON of any dialect."""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.model import InputError

#: Raised when a reader takes more or other things than before, so that files are read anew.
_VERSION = b"readers 1"

#: Larger than the results of any project we know; what it becomes in memory is some ten times as much.
LIMIT_BYTES = 64 << 20


def read_file(path: Path, limit: int = LIMIT_BYTES) -> bytes:
    """Content of a regular file. InputError for anything else and for one larger than ``limit``."""
    try:
        # Not blocking: a pipe that took the place of a file must not hold us up.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise InputError(f"{path}: not a regular file; give a file or a folder of files")
            data = file.read(limit + 1) if info.st_size <= limit else b""
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); make it readable or leave it out") from None
    if info.st_size > limit or len(data) > limit:
        raise InputError(f"{path}: more than {limit >> 20} MiB; split the file")
    return data


@lru_cache(maxsize=1)
def _content(path: Path, size: int, changed: int) -> bytes:
    return read_file(path)


def peek(path: Path) -> bytes:
    """The whole content for telling formats apart; empty for what cannot be a result. Never raises."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode) or info.st_size > LIMIT_BYTES:
            return b""
        return _content(path, info.st_size, info.st_mtime_ns)
    except (InputError, OSError, ValueError):
        return b""


def holds(path: Path, *marks: bytes, ending: tuple[str, ...] = (".json",)) -> bool:
    """Whether a JSON object in a file has all these texts in it."""
    if not path.name.lower().endswith(ending):
        return False
    data = peek(path)
    return data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and all(mark in data for mark in marks)


def parse_json(data: bytes, place: str) -> Any:
    """A JSON value; NaN and infinities are taken. InputError names ``place:line`` where it is none."""
    import msgspec

    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        pass  # NaN, a byte-order mark, or truly wrong: the slow parser says which
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{place}:{line}: not UTF-8; convert the file first") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{place}:{error.lineno}: not JSON ({error.msg}, column {error.colno}); "
            "a file that was cut off must be copied again or left out"
        ) from None
    except (RecursionError, ValueError, MemoryError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:80]
        raise InputError(f"{place}: JSON that cannot be read ({why}); leave the file out") from None


def digest_of(*parts: bytes) -> str:
    """32 hex digits over ``parts``."""
    total = hashlib.sha256(_VERSION)
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()[:32]


def inside(path: Path, root: Path) -> Path:
    """``path``, unless it is a link that leads out of ``root``: then InputError."""
    if path.is_symlink():
        try:
            target = path.resolve(strict=True)
        except (OSError, RuntimeError):
            raise InputError(f"{path}: a link to nothing; remove it or give the file itself") from None
        if not target.is_relative_to(root.resolve()):
            raise InputError(f"{path}: a link out of {root}; give the file itself")
    return path


class Fields:
    """An object of a file, read field by field; errors name the file and the field."""

    def __init__(self, value: object, place: str, field: str = "") -> None:
        if not isinstance(value, dict):
            raise InputError(f"{place}: {_at(field)}must be an object, not {show(value)}")
        self.value: dict[str, Any] = value
        self.place, self.field = place, field

    def path(self, name: str) -> str:
        """Name of a field with those above it."""
        return f"{self.field}.{name}" if self.field else name

    def fail(self, name: str, why: str) -> InputError:
        """An error about the field ``name``."""
        return InputError(f"{self.place}: field {self.path(name)}: {why}")

    def object(self, name: str) -> Fields:
        """A field that must be an object; a missing or null one is empty."""
        found = self.value.get(name)
        return Fields({} if found is None else found, self.place, self.path(name))

    def sequence(self, name: str) -> list[Any]:
        """A field that must be a list; a missing or null one is empty."""
        found = self.value.get(name)
        if found is None:
            return []
        if not isinstance(found, list):
            raise self.fail(name, f"must be a list, not {show(found)}")
        return found

    def objects(self, name: str) -> list[Fields]:
        """A field that must be a list of objects."""
        return [Fields(x, self.place, self.path(f"{name}[{i}]")) for i, x in enumerate(self.sequence(name))]

    def text(self, name: str, default: str | None = None) -> str:
        """A field that must be text; InputError where it is missing and has no default."""
        found = self.value.get(name)
        if found is None and default is not None:
            return default
        if not isinstance(found, str):
            raise self.fail(name, "is missing" if found is None else f"must be text, not {show(found)}")
        return found

    def number(self, name: str) -> float | None:
        """A finite number, or None where there is none."""
        return finite(self.value.get(name))


def finite(value: object) -> float | None:
    """The value as a finite float; None for everything else, bools included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def show(value: object) -> str:
    """Short text of a value for a message."""
    text = repr(value)[:61] if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def _at(field: str) -> str:
    return f"field {field} " if field else ""
