"""Opening a store: address, pragmas, schema version, and errors in words that help."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import QueuePool

from harness.jsonout import finite
from harness.model import InfrastructureError, InputError

from .errors import damaged, explain, unreadable
from .schema import ensure_schema

DEFAULT_URL = "sqlite:///attnwatch.db"

#: How long a writer waits for another one, in seconds.
LOCK_TIMEOUT_S = 60.0

_WRITE = "attnwatch_write"
#: Any number will do that no other application takes on the same PostgreSQL database.
_ADVISORY_LOCK = 0x61_74_74_6E
#: Seconds to wait for a server that does not answer, and what it shows of us; the URL may say otherwise.
_CONNECT: dict[str, Any] = {"connect_timeout": 10, "application_name": "attnwatch"}


@dataclass
class Store:
    """An open store. ``name`` is what messages call it: the path of the file, or the URL without a password."""

    engine: Engine
    name: str
    path: Path | None
    read_only: bool
    lock_timeout_s: float = LOCK_TIMEOUT_S
    _file: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self._file = self._place()

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one state of the store throughout."""
        with self.errors(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that no other writer runs beside; committed at the end, undone on any error."""
        if self.read_only:
            raise InputError(f"{self.name}: this store was opened for reading only")
        with self.errors(), self.engine.connect() as plain:
            options: dict[str, Any] = {_WRITE: True}
            if plain.dialect.name == "postgresql":
                # Repeatable read would look at the store as it was before the wait for the lock.
                options["isolation_level"] = "READ COMMITTED"
            connection = plain.execution_options(**options)
            self._file = self._file or self._place()
            with connection.begin():
                if connection.dialect.name == "postgresql":
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {max(1, round(self.lock_timeout_s * 1000))}")
                    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
                yield connection
                self._still_there()
            self._still_there()

    def _place(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat() if self.path is not None else None
        except OSError:
            return None
        return None if found is None else (found.st_dev, found.st_ino)

    def _still_there(self) -> None:
        """SQLite goes on writing to a file that nobody can find any more, and says nothing."""
        if self._file is not None and self._place() != self._file:
            raise InfrastructureError(
                f"{self.name}: the file was moved, deleted or replaced while it was open; nothing of this step is in "
                "what is there now; put the store back, or repeat it to begin a new one"
            )

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turns errors of the database into ones that name the store and a remedy."""
        try:
            yield
        except DBAPIError as error:
            raise explain(self.name, error.orig) from error
        except Exception as error:
            if isinstance(error, sqlite3.Error) or type(error).__module__.startswith("psycopg"):
                raise explain(self.name, error) from error
            if self.path is not None and unreadable(error):
                raise damaged(self.name, error) from error
            raise

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_store(
    url: str | os.PathLike[str] | None = None,
    *,
    create: bool = True,
    read_only: bool = False,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> Store:
    """Open the store at ``url``: a URL, a plain path, or None for ``ATTNWATCH_DB`` or ``sqlite:///attnwatch.db``.

    The schema is brought up to date, unless ``read_only``. ``create=False`` refuses a file that is not there.
    Raises InputError for a wrong address, a file of something else or a newer schema; InfrastructureError for a
    store that is corrupt, locked, not writable or on a full disk.
    """
    address = _address(url)
    if isinstance(address, Path):
        engine = _open_file(address, create=create and not read_only, read_only=read_only, timeout=lock_timeout_s)
        store = Store(engine, str(address), address, read_only, lock_timeout_s)
    else:
        store = Store(_open_server(address, read_only=read_only), _shown(address), None, read_only, lock_timeout_s)
    try:
        ensure_schema(store)
    except BaseException:
        store.close()
        raise
    return store


def file_of(url: str | os.PathLike[str] | None = None) -> Path | None:
    """The file of the store that :func:`open_store` would open; None for one on a server."""
    address = _address(url)
    return address if isinstance(address, Path) else None


def _address(url: str | os.PathLike[str] | None) -> Path | URL:
    return _parse(os.fspath(url) if url is not None else os.environ.get("ATTNWATCH_DB") or DEFAULT_URL)


def _parse(text: str) -> Path | URL:
    if "://" not in text:
        if not text or "\0" in text or text == ":memory:":
            raise InputError(f"--db {text!r} is not the path of a file; give a path or a URL such as {DEFAULT_URL}")
        return Path(text)
    # Heroku and others still hand out the short scheme, which SQLAlchemy no longer knows.
    text = "postgresql://" + text.removeprefix("postgres://") if text.startswith("postgres://") else text
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise InputError(f"--db: not a URL; write sqlite:///PATH or postgresql://HOST/NAME ({error})") from error
    backend = url.get_backend_name()
    if backend == "sqlite":
        if not url.database or url.database == ":memory:" or url.host:
            raise InputError(f"--db {text!r} names no file; write sqlite:///relative/path or sqlite:////absolute/path")
        return Path(url.database)
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url
    raise InputError(f"--db: {backend} is not supported; write sqlite:///PATH or postgresql://HOST/NAME")


def _open_file(path: Path, *, create: bool, read_only: bool, timeout: float) -> Engine:
    try:
        is_dir, exists, parent = path.is_dir(), path.exists(), path.absolute().parent.is_dir()
    except OSError as error:
        raise InputError(f"{path}: cannot be the file of a store ({error.strerror}); give another path") from error
    if is_dir:
        raise InputError(f"{path}: is a folder; give the path of a file, such as {path / 'attnwatch.db'}")
    if not exists and not create:
        raise InputError(f"{path}: no store here; ingest a bundle first, or give its path with --db or ATTNWATCH_DB")
    if not parent:
        raise InputError(f"{path}: the folder {path.absolute().parent} does not exist; create it or give another path")
    mode = "ro" if read_only else "rwc" if create else "rw"
    address = f"file:{quote(str(path.absolute()))}?mode={mode}"
    if read_only and _is_frozen(path):
        address += "&immutable=1"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(address, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            if not read_only:
                _use_wal(connection, timeout)
                # With a write-ahead log NORMAL loses no committed run to a crash of ours, only to a power failure.
                connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA cache_size = -8192")
        except BaseException:
            connection.close()
            raise
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, json_serializer=dump_json)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes later cannot wait for another writer; one that will write says so.
        writes = connection.get_execution_options().get(_WRITE)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _shown(url: URL) -> str:
    """The URL without passwords, wherever they stand."""
    secret = {k: "hidden" for k in url.query if "password" in k.lower()}
    return url.update_query_dict(secret).render_as_string(hide_password=True)


def _open_server(url: URL, *, read_only: bool) -> Engine:
    try:
        engine = create_engine(
            url, json_serializer=dump_json, isolation_level="REPEATABLE READ",
            # A server that was restarted since the last statement is noticed before the next one, not by it.
            pool_pre_ping=True,
            connect_args={k: v for k, v in _CONNECT.items() if k not in url.query},
        )  # fmt: skip
        return engine.execution_options(postgresql_readonly=True) if read_only else engine
    except NoSuchModuleError as error:
        raise InputError(f"--db: {url.drivername} is not a known driver; write postgresql://HOST/NAME") from error
    except ModuleNotFoundError as error:
        raise InputError(
            f"--db: PostgreSQL needs the package {error.name}; install attnwatch with the extra 'postgres'"
        ) from error


def dump_json(value: object) -> str:
    """JSON as the store writes it: compact, ASCII, order of the keys kept; null for numbers that JSON lacks."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), separators=(",", ":"))


def _is_frozen(path: Path) -> bool:
    """True where SQLite cannot make the shared memory that a write-ahead log needs even for reading."""
    wal = path.with_name(path.name + "-wal")
    read_only_fs = bool(os.statvfs(path.absolute().parent).f_flag & os.ST_RDONLY)
    writable = os.access(path.absolute().parent, os.W_OK) and not read_only_fs
    return not writable and not (wal.exists() and wal.stat().st_size)


def _use_wal(connection: sqlite3.Connection, timeout: float) -> None:
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    # Two processes that open a new file at once: changing the mode does not wait for the other as writing does.
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
