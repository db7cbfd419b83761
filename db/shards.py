"""Runs that several bundles make together: each holds the cases of one shard."""

from __future__ import annotations

from sqlalchemy import Connection, func, select, update

from harness.model import Run

from . import tables as t
from .bulk import table_of


def join(connection: Connection, key: int, run: Run, environment: int) -> str | None:
    """Let a shard join the stored run ``key``, which began with the first of them; what is odd about it, or None."""
    table = table_of(t.Run)
    row = connection.execute(select(table.c.started_at, table.c.environment_id).where(table.c.id == key)).one()
    if run.started_at < row.started_at:
        connection.execute(update(table).where(table.c.id == key).values(started_at=run.started_at))
    if environment == row.environment_id:
        return None
    return f"run {run.id[:80]}: its shards were measured in different environments; that of the first is kept"


def count(connection: Connection, key: int, planned: int) -> None:
    """Each shard knows its own part only; the run ``key`` is complete when all ``planned`` cases are there."""
    table, m = table_of(t.Run), table_of(t.Measurement).c
    query = select(func.count(m.case_id.distinct())).where(m.run_id == key)
    measured = connection.execute(query).scalar_one()
    change = update(table).where(table.c.id == key)
    connection.execute(change.values(measured=measured, complete=measured >= planned))
