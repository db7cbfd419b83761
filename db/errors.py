"""What went wrong in a database, in words that name the store and a remedy."""

from __future__ import annotations

from json import JSONDecodeError

from harness.model import InfrastructureError, InputError


def explain(name: str, error: BaseException | None) -> InfrastructureError | InputError:
    """The error to raise for one of the driver's about the store called ``name``."""
    sqlite = getattr(error, "sqlite_errorname", None)
    if sqlite is not None:
        return _of_sqlite(name, sqlite, error)
    state = getattr(error, "sqlstate", None)
    # psycopg gives no state where there was no answer: the server was not reached or the connection broke.
    if state is not None or type(error).__module__.startswith("psycopg"):
        return _of_postgresql(name, state, error)
    return InfrastructureError(f"{name}: the database refused ({error}); nothing of this step was kept")


def damaged(name: str, error: BaseException | None) -> InfrastructureError:
    """The error to raise for the file of a store that holds what nobody wrote."""
    return InfrastructureError(
        f"{name}: the database is corrupt ({error}); restore a backup with `attnwatch db restore`, or rescue what "
        f"can be read with `sqlite3 {name} .recover` and ingest the bundles again"
    )


def unreadable(error: BaseException) -> bool:
    """Whether the driver met text in a store that is none, or JSON that is none; no code of SQLite says so."""
    if not isinstance(error, UnicodeDecodeError | JSONDecodeError):
        return False
    # The same error from a file that is read while a store is open is not the store's: who was reading counts.
    reader, trace = "", error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        reader = reader if module.partition(".")[0] == "json" else module
        trace = trace.tb_next
    return reader.partition(".")[0] == "sqlalchemy" or reader == "db.engine"


def _of_sqlite(name: str, code: str, error: BaseException | None) -> InfrastructureError:
    if code == "SQLITE_NOTADB":
        return InfrastructureError(
            f"{name}: not a SQLite database, or a damaged one ({error}); give another path, or restore a backup with "
            "`attnwatch db restore`"
        )
    if code.startswith("SQLITE_CORRUPT"):
        return damaged(name, error)
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return InfrastructureError(
            f"{name}: locked by another process ({error}); nothing was changed; try again when it has finished"
        )
    if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return InfrastructureError(
            f"{name}: the file or its folder cannot be opened for this ({error}); make both writable for this user, "
            "or give another path with --db"
        )
    if code == "SQLITE_FULL":
        return InfrastructureError(
            f"{name}: the disk is full ({error}); nothing of this step was kept; free some space and repeat it"
        )
    if code.startswith("SQLITE_IOERR"):
        return InfrastructureError(
            f"{name}: reading or writing failed ({error}); nothing of this step was kept; look for a full or failing "
            "disk or a limit on file sizes, then repeat it"
        )
    return InfrastructureError(f"{name}: the database refused ({error}); nothing of this step was kept")


#: SQLSTATE or the class that it begins with -> what to say; the first that fits counts.
_STATES = (
    ("28", "the server refused the user or password; correct the URL, or set PGPASSWORD or a ~/.pgpass"),
    ("3D000", "there is no such database on the server; create it with `createdb` and repeat"),
    ("42501", "this user may not do that; grant it the database and its schema, then repeat"),
    ("25006", "the server or this user may only read; give the URL of the primary server"),
    ("53100", "the server's disk is full; nothing of this step was kept; free some space and repeat it"),
    ("53300", "the server takes no more connections; repeat later, or raise max_connections"),
    ("53", "the server lacks resources; nothing of this step was kept; repeat later"),
    ("55P03", "another process holds a lock; nothing was changed; repeat when it has finished"),
    ("40", "another process wrote the same; nothing was changed; repeat"),
    ("57P", "the server was stopped or cut the connection; nothing of this step was kept; repeat when it is back"),
    ("57", "the server cancelled the statement; nothing of this step was kept; repeat it"),
    ("08", "the connection broke; nothing of this step was kept; repeat when the server answers again"),
)


_REFUSALS = (
    (("FATAL", "database ", "does not exist"), "3D000"),
    (("FATAL", "role ", "does not exist"), "28"),
    (("FATAL", "authentication failed"), "28"),
    (("no password supplied",), "28"),
    (("FATAL", "too many"), "53300"),
    (("FATAL", "remaining connection slots"), "53300"),
)


def _of_postgresql(name: str, state: str | None, error: BaseException | None) -> InfrastructureError | InputError:
    said = " ".join(str(error).split())[:300]
    if state is None:
        # libpq gives no state for a refused connection, only the words of the server.
        state = next((code for words, code in _REFUSALS if all(w in said for w in words)), None)
    if state is None:
        return InfrastructureError(
            f"{name}: the server is not reached or the connection broke ({said}); nothing of this step was kept; look "
            "whether it runs and whether host, port and database are right, then repeat"
        )
    if state.startswith("22"):
        return InputError(f"{name}: a value does not fit into PostgreSQL ({said}); nothing of this step was kept")
    for start, remedy in _STATES:
        if state.startswith(start):
            return InfrastructureError(f"{name}: {remedy} ({said})")
    return InfrastructureError(f"{name}: the database refused ({said}); nothing of this step was kept")
