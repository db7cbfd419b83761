"""Alembic's entry: runs in the connection that the store hands over, or writes SQL when there is none."""

from __future__ import annotations

from alembic import context

from db.tables import Base


def run() -> None:
    """Run the migrations that Alembic asks for."""
    connection = context.config.attributes.get("connection")
    if context.is_offline_mode() or connection is None:
        context.configure(
            dialect_name=context.config.attributes.get("dialect", "sqlite"),
            target_metadata=Base.metadata,
            output_buffer=context.config.output_buffer,
        )
    else:
        # Tables are created inside the transaction that the caller holds, so a killed upgrade leaves nothing behind.
        # SQLite cannot alter columns in place; batch mode copies the table.
        context.configure(
            connection=connection,
            target_metadata=Base.metadata,
            transactional_ddl=True,
            render_as_batch=connection.dialect.name == "sqlite",
        )
    with context.begin_transaction():
        context.run_migrations()


run()
