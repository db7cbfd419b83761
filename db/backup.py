"""Backups: one SQLite file that holds the whole store, whatever database the store is in."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from harness.model import InfrastructureError, InputError

from .copying import Progress, TableCopy, copy_store
from .engine import Store, file_of, open_store
from .errors import explain
from .queries import row_counts

#: Pages of SQLite that are copied between two looks at whoever waits.
_PAGES = 4096


def backup(
    store: Store, to: Path, *, force: bool = False, progress: Progress | None = None
) -> tuple[Path, dict[str, int]]:
    """Write all of ``store`` to the file ``to`` and check it; the path, and rows per kind of record in it.

    The store may be written to meanwhile. The file appears whole or not at all, and needs no other file beside it.
    Raises InputError where ``to`` exists (unless ``force``) or its folder does not.
    """
    if to.is_dir():
        raise InputError(f"{to}: is a folder; name a file in it, such as {to / default_name()}")
    if store.path is not None and to.exists() and to.samefile(store.path):
        raise InputError(f"{to}: is the store itself; name another file")
    if to.exists() and not force:
        raise InputError(f"{to}: exists already; name another file, or give --force to replace it")
    if not to.absolute().parent.is_dir():
        raise InputError(f"{to}: the folder {to.absolute().parent} does not exist; create it or name another file")
    part = to.with_name(f".{to.name}.{os.getpid()}.part")
    try:
        with _errors_of(to):
            if store.path is not None:
                _copy_pages(store, part, progress)
            else:
                with open_store(part) as target:
                    copy_store(store, target, progress=progress)
            _single_file(part)
        counts = check_backup(part)
        _to_disk(part)
        part.replace(to)
        _to_disk(to.absolute().parent)
    except OSError as error:
        raise InfrastructureError(
            f"{to}: cannot be written ({error.strerror}); make room or name another file"
        ) from error
    finally:
        for leftover in (part, *(part.with_name(part.name + end) for end in ("-wal", "-shm", "-journal"))):
            leftover.unlink(missing_ok=True)
    return to, counts


def restore(
    file: Path, target: str | None, *, force: bool = False, progress: Progress | None = None
) -> tuple[str, list[TableCopy]]:
    """Put what the backup ``file`` holds into the store ``target``, new or empty; its name, and what was copied.

    ``force`` replaces what the store holds; a store whose file is damaged is then kept beside it, renamed. Raises
    InputError for a file that is no backup, InfrastructureError for a damaged one.
    """
    check_backup(file)
    with open_store(file, read_only=True) as source, _opened(target, force=force) as store:
        return store.name, copy_store(source, store, force=force, progress=progress)


def default_name() -> str:
    """Name of a backup that is made now."""
    return f"attnwatch-backup-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.db"


def check_backup(file: Path) -> dict[str, int]:
    """Whether a backup is whole, page by page and reference by reference; rows per kind of record."""
    with open_store(file, create=False, read_only=True) as store:
        with store.read() as connection:
            found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
            if found != "ok":
                raise InfrastructureError(f"{file}: the backup is damaged ({found}); use an older one")
            if (row := connection.exec_driver_sql("PRAGMA foreign_key_check").first()) is not None:
                raise InfrastructureError(
                    f"{file}: the backup is damaged (table {row[0]} points at nothing); use an older one"
                )
        return row_counts(store)


def _copy_pages(store: Store, part: Path, progress: Progress | None) -> None:
    part.unlink(missing_ok=True)

    def told(_status: int, left: int, total: int) -> None:
        if progress is not None:
            progress("pages", total - left)

    with store.engine.connect() as plain, contextlib.closing(sqlite3.connect(part)) as out:
        source = plain.connection.driver_connection
        assert isinstance(source, sqlite3.Connection)
        source.backup(out, pages=_PAGES, progress=told)


def _single_file(part: Path) -> None:
    """No write-ahead log beside it, so that one file is the backup."""
    with contextlib.closing(sqlite3.connect(part)) as out:
        out.execute("PRAGMA journal_mode = DELETE").fetchone()


@contextlib.contextmanager
def _errors_of(file: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise explain(str(file), error) from error


@contextlib.contextmanager
def _opened(target: str | None, *, force: bool) -> Iterator[Store]:
    try:
        store = open_store(target)
    except InfrastructureError as error:
        path = _damaged(error, target) if force else None
        if path is None:
            raise
        aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        for end in ("", "-wal", "-shm"):
            old = path.with_name(path.name + end)
            if old.exists():
                old.rename(aside.with_name(aside.name + end))
        store = open_store(target)
    with store:
        yield store


def _damaged(error: InfrastructureError, target: str | None) -> Path | None:
    """The file of the store where it is the content of the file that is wrong with it."""
    code = getattr(getattr(error.__cause__, "orig", error.__cause__), "sqlite_errorname", "")
    if code != "SQLITE_NOTADB" and not code.startswith("SQLITE_CORRUPT"):
        return None
    return file_of(target)


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
