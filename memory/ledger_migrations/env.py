"""Alembic runs this: the migrations, over the connection and within the transaction that was opened for them."""

from __future__ import annotations

from alembic import context

from agentspec.memory.ledger_migrations import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
with context.begin_transaction():
    context.run_migrations()
