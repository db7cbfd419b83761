"""Bringing a store to the newest schema, and refusing one that is not ours or newer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from harness.model import InputError

if TYPE_CHECKING:
    from alembic.config import Config

    from .engine import Store

#: The newest revision in ``migrations/versions``; a test holds the two together.
HEAD = "0001"


def ensure_schema(store: Store) -> None:
    """Upgrade an empty or older store; a store opened for reading must be up to date already."""
    with store.read() as connection:
        found = _version(connection, store.name)
    if found == HEAD:
        return
    if store.read_only:
        raise InputError(
            f"{store.name}: the store {'is empty' if found is None else f'has the older schema {found}'}; "
            "open it once for writing (`attnwatch db upgrade`)"
        )
    with store.write() as connection:
        # Another process may have been faster: look again now that no other writer is about.
        if _version(connection, store.name) != HEAD:
            upgrade(connection)


def upgrade(connection: Connection) -> None:
    """Run the missing migrations in the transaction of ``connection``."""
    from alembic import command

    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def alembic_config() -> Config:
    """Where the migrations are; no file is needed."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


def _version(connection: Connection, name: str) -> str | None:
    """The schema version, or None for an empty database. Raises InputError for a newer or a foreign one."""
    tables = set(inspect(connection).get_table_names())
    if not tables:
        return None
    if "alembic_version" not in tables or not tables & {"measurement", "run"}:
        raise InputError(
            f"{name}: this database holds something else ({', '.join(sorted(tables)[:3])}); give another path with --db"
        )
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if found is None:
        raise InputError(f"{name}: its table alembic_version is empty; restore a backup or give another path with --db")
    if str(found) > HEAD:
        raise InputError(
            f"{name}: schema {found} is newer than {HEAD}, the newest this attnwatch knows; upgrade attnwatch"
        )
    return str(found)
