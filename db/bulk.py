"""Inserting many rows at the speed of the driver, the same way on SQLite and PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, bindparam
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase

_encode = msgspec.json.Encoder().encode


def table_of(model: type[DeclarativeBase]) -> Table:
    """The table behind a declarative class."""
    table = model.__table__
    assert isinstance(table, Table)
    return table


def upsert(connection: Connection, model: type[DeclarativeBase]) -> Any:
    """``INSERT`` with ``on_conflict_do_nothing`` and ``on_conflict_do_update``, which both databases know."""
    module = postgresql if connection.dialect.name == "postgresql" else sqlite
    return module.insert(table_of(model))


class BulkInsert:
    """``INSERT ... ON CONFLICT DO NOTHING`` of tuples, compiled once and handed to the driver's executemany.

    Values go to the driver as they are: JSON columns take text, booleans ``bool``. ``fresh`` says that no row can be
    there already; PostgreSQL then takes them with ``COPY``, which is several times faster.
    """

    def __init__(
        self, connection: Connection, model: type[DeclarativeBase], columns: Sequence[str], *, fresh: bool = False
    ) -> None:
        statement = upsert(connection, model).values({c: bindparam(c) for c in columns}).on_conflict_do_nothing()
        compiled = statement.compile(dialect=connection.dialect)
        self._connection = connection
        self._sql = str(compiled)
        self._columns = tuple(columns)
        self._names = tuple(compiled.positiontup or ()) if compiled.positional else None
        # A tuple is in the order of `columns`; the driver may want another.
        self._order = [self._columns.index(n) for n in self._names] if self._names else []
        self._same = self._names == self._columns
        self._copy = ""
        if fresh and connection.dialect.name == "postgresql":
            quote = connection.dialect.identifier_preparer.quote
            self._copy = f"COPY {quote(model.__tablename__)} ({', '.join(map(quote, columns))}) FROM STDIN"

    def __call__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert ``rows``, each in the order of ``columns``."""
        if not rows:
            return
        if self._copy:
            with self._connection.connection.cursor() as cursor, cursor.copy(self._copy) as copy:  # type: ignore[attr-defined]
                for row in rows:
                    copy.write_row(row)
        elif self._names is None:
            self._connection.exec_driver_sql(self._sql, [dict(zip(self._columns, row, strict=True)) for row in rows])
        elif self._same:
            self._connection.exec_driver_sql(self._sql, list(rows))
        else:
            self._connection.exec_driver_sql(self._sql, [tuple(row[i] for i in self._order) for row in rows])


def refresh_statistics(connection: Connection) -> None:
    """Tell PostgreSQL's planner what the tables hold now; it would learn it by itself minutes later.

    Until then it takes a table that has just been filled for an empty one, and a page waits for many seconds.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql('ANALYZE "case", run, measurement, metric_value')


def to_json(value: object) -> str:
    """JSON text for a JSON column of a bulk insert."""
    try:
        return _encode(value).decode()
    except (OverflowError, UnicodeEncodeError):  # whole numbers beyond 64 bits, lone surrogates
        return json.dumps(value, separators=(",", ":"))


def clean(text: str) -> str:
    """Text that both databases keep: U+0000 becomes its visible picture, lone surrogates their escape."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\u2400").encode("utf-8", "backslashreplace").decode()
