"""Giving up raw samples of old runs; every number that was made of them stays."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, LargeBinary, bindparam, func, literal, select, update

from . import samples as codec
from . import tables as t
from .bulk import table_of
from .engine import Store

#: Measurements in one transaction, so that others can write in between.
_BATCH = 2000


@dataclass(frozen=True)
class Pruned:
    """What was, or with a dry run would be, given up. Bytes are those of the samples, then of the whole store."""

    measurements: int
    runs: int
    sample_bytes: int
    store_bytes_before: int
    store_bytes_after: int


def prune_samples(store: Store, before: float, *, dry_run: bool = False) -> Pruned:
    """Give up the samples of runs that started before ``before`` (seconds since the epoch).

    Metrics, intervals, statuses and all else stay. A digest of the samples stays, so that ingesting the bundle again
    is still a no-op. Broken off, the same call goes on. The space is given back where the database can do so.
    """
    m, r = table_of(t.Measurement).c, table_of(t.Run).c
    wanted: list[ColumnElement[bool]] = [
        r.started_at < before, m.samples.is_not(None), func.substr(m.samples, 1, 1) != literal(b"\2", LargeBinary),
    ]  # fmt: skip
    joined = table_of(t.Measurement).join(table_of(t.Run), m.run_id == r.id)
    count = select(func.count(), func.count(m.run_id.distinct()), func.sum(func.length(m.samples)))
    with store.read() as connection:
        number, runs, held = connection.execute(count.select_from(joined).where(*wanted)).one()
    size = store_bytes(store)
    if not dry_run and number:
        query = select(m.id, m.samples).select_from(joined).where(*wanted).order_by(m.id).limit(_BATCH)
        change = update(table_of(t.Measurement)).where(m.id == bindparam("row")).values(samples=bindparam("left"))
        last = -1
        while True:
            with store.write() as connection:
                rows = connection.execute(query.where(m.id > last)).all()
                if not rows:
                    break
                connection.execute(change, [{"row": i, "left": codec.pruned(*codec.decode(data))} for i, data in rows])
                last = rows[-1].id
        give_back_space(store)
    return Pruned(number, runs, int(held or 0), size, size if dry_run else store_bytes(store))


def store_bytes(store: Store) -> int:
    """Size of the store: of its file with the write-ahead log, or of the database on the server."""
    if store.path is not None:
        files = (store.path, store.path.with_name(store.path.name + "-wal"))
        return sum(f.stat().st_size for f in files if f.exists())
    with store.read() as connection:
        return int(connection.execute(select(func.pg_database_size(func.current_database()))).scalar_one())


def give_back_space(store: Store) -> None:
    """Pack the store. SQLite gives the space back to the disk; PostgreSQL keeps it for rows to come."""
    with store.errors(), store.engine.connect() as plain:
        # Neither database packs within a transaction.
        driver = plain.connection.driver_connection
        assert driver is not None
        if store.path is not None:
            driver.execute("VACUUM")
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return
        driver.autocommit = True
        try:
            driver.execute("VACUUM (ANALYZE) measurement")
        finally:
            driver.autocommit = False
