"""Migrations and tables say the same, on both databases."""

from __future__ import annotations

import io
from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from db.engine import open_store
from db.schema import HEAD, alembic_config
from db.tables import Base


def test_migrations_lead_to_the_tables(tmp_path: Path) -> None:
    with open_store(tmp_path / "x.db") as store, store.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


def test_autogenerate_would_notice(tmp_path: Path) -> None:
    with open_store(tmp_path / "x.db") as store:
        with store.write() as connection:
            connection.execute(text("DROP INDEX ix_run_suite_started_at"))
            connection.execute(text("ALTER TABLE run DROP COLUMN options"))
        with store.read() as connection:
            found = compare_metadata(MigrationContext.configure(connection), Base.metadata)
    assert {change[0] for change in found} == {"add_index", "add_column"}


def test_head_is_the_newest_migration() -> None:
    script = ScriptDirectory.from_config(alembic_config())
    assert script.get_heads() == [HEAD]


def test_downgrade_and_upgrade_again(tmp_path: Path) -> None:
    with open_store(tmp_path / "x.db") as store, store.write() as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        left = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars().all()
        assert left == ["alembic_version"]
        command.upgrade(config, "head")
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_same_migrations_write_postgresql() -> None:
    config = alembic_config()
    config.output_buffer = out = io.StringIO()
    config.attributes["dialect"] = "postgresql"
    command.upgrade(config, "head", sql=True)
    sql = out.getvalue()
    assert "CREATE TABLE measurement" in sql
    assert "id BIGINT NOT NULL" in sql
    assert "WITHOUT ROWID" not in sql
    for table in Base.metadata.sorted_tables:
        # The same columns with the same types, from the tables and from the migration.
        columns = [
            line.strip().rstrip(",")
            for line in str(CreateTable(table).compile(dialect=postgresql.dialect())).splitlines()
        ]
        written = [line.strip().rstrip(",") for line in sql.splitlines()]
        for column in columns[2:]:
            if column and not column.startswith((")", "CONSTRAINT")):
                assert column in written, (table.name, column)
