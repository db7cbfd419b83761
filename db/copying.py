"""A store into another one, whichever databases they are, verified row by row, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import JSON, Boolean, Connection, Table, Text, cast, delete, func, select, text

from harness.model import InfrastructureError, InputError

from . import tables as t
from .bulk import BulkInsert, refresh_statistics
from .engine import Store, dump_json

#: Rows held at a time.
_ROWS = 2000

#: Called with the name of a table and the rows of it copied so far.
Progress = Callable[[str, int], None]


@dataclass(frozen=True)
class TableCopy:
    """Rows of one table, and the digest of their content; both were the same on both sides."""

    name: str
    rows: int
    digest: str


class _Digest:
    """Of rows in whatever order: databases sort text differently."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self.rows += len(rows)
        for row in rows:
            found = hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
            self._sum += int.from_bytes(found, "little")

    @property
    def hex(self) -> str:
        return f"{self._sum % (1 << 128):032x}"


def copy_store(
    source: Store, target: Store, *, force: bool = False, progress: Progress | None = None
) -> list[TableCopy]:
    """Copy all rows of ``source`` into ``target``, read them back, and compare; one entry per table.

    All in one transaction of the target: it ends as it was, or as an equal of the source. A target that holds
    anything is refused unless ``force``, which replaces what it holds. Raises InputError for that and where both are
    one store, InfrastructureError where what was read back differs.
    """
    if _same(source, target):
        raise InputError(f"{source.name}: both addresses are of this store; give another one to copy to")
    models = t.Base.metadata.sorted_tables
    done = []
    with source.read() as have, target.write() as put:
        held = {m.name: n for m in models if (n := put.execute(select(func.count()).select_from(m)).scalar() or 0)}
        if held and not force:
            told = ", ".join(f"{n} of {name}" for name, n in list(held.items())[:3])
            raise InputError(
                f"{target.name}: already holds rows ({told}); give --force to replace them, or another store"
            )
        for table in reversed(models):
            if table.name in held:
                put.execute(delete(table))
        for table in models:
            done.append(_copy_table(table, have, put, target.name, progress))
            if put.dialect.name == "postgresql":
                _go_on_counting(table, put)
        refresh_statistics(put)
    return done


def digests(store: Store) -> dict[str, str]:
    """Table -> digest of all that it holds; equal for stores of equal content, whatever their databases."""
    out = {}
    with store.read() as connection:
        for table in t.Base.metadata.sorted_tables:
            digest = _Digest()
            for rows in _rows(table, connection):
                digest.add(rows)
            out[table.name] = digest.hex
    return out


def _copy_table(table: Table, have: Connection, put: Connection, target: str, progress: Progress | None) -> TableCopy:
    given, found = _Digest(), _Digest()
    insert = BulkInsert(put, _MODELS[table.name], [c.name for c in table.columns], fresh=True)
    for rows in _rows(table, have):
        given.add(rows)
        insert(rows)
        if progress is not None:
            progress(table.name, given.rows)
    for rows in _rows(table, put):
        found.add(rows)
    if (given.rows, given.hex) != (found.rows, found.hex):
        raise InfrastructureError(
            f"{target}: table {table.name} came back with {found.rows} rows where {given.rows} were written, or with "
            "other content; nothing was kept; repeat, and report it with both versions if it stays"
        )
    return TableCopy(table.name, given.rows, given.hex)


def _rows(table: Table, connection: Connection) -> Iterator[list[tuple[Any, ...]]]:
    """All rows as plain values that both drivers take and give alike; JSON as its text."""
    columns = [cast(c, Text) if isinstance(c.type, JSON) else c for c in table.columns]
    as_json = [i for i, c in enumerate(table.columns) if isinstance(c.type, JSON)]
    as_bool = {i for i, c in enumerate(table.columns) if isinstance(c.type, Boolean)}
    result = connection.execute(select(*columns), execution_options={"yield_per": _ROWS})
    for part in result.partitions():
        yield [
            tuple(_json(v) if i in as_json else bool(v) if i in as_bool else _plain(v) for i, v in enumerate(row))
            for row in part
        ]


def _plain(value: Any) -> Any:
    # SQLite keeps NaN as NULL.
    return None if isinstance(value, float) and math.isnan(value) else value


def _json(text: str | None) -> str | None:
    """JSON that both databases take: null for the numbers that older stores hold and JSON lacks."""
    if text is None or ("NaN" not in text and "Infinity" not in text):
        return text
    return dump_json(json.loads(text))


def _go_on_counting(table: Table, connection: Connection) -> None:
    """Rows came with their keys, of which PostgreSQL's own counter knows nothing."""
    key = table.autoincrement_column
    if key is None:
        return
    name = f'"{table.name}"'
    connection.execute(
        text(
            f"SELECT setval(pg_get_serial_sequence('{name}', '{key.name}'), "
            f'coalesce(max("{key.name}"), 1), max("{key.name}") IS NOT NULL) FROM {name}'
        )
    )


def _same(source: Store, target: Store) -> bool:
    if source.path is not None and target.path is not None:
        return source.path.exists() and target.path.exists() and source.path.samefile(target.path)
    a, b = source.engine.url, target.engine.url
    return source.path is None and target.path is None and (a.host, a.port, a.database) == (b.host, b.port, b.database)


_MODELS = {m.class_.__tablename__: m.class_ for m in t.Base.registry.mappers}
