"""Run migrations on the connection that ``run_tables.migrate`` hands over."""

from __future__ import annotations

from alembic import context

from envgen.store.run_tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
