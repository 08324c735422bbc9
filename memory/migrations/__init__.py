"""The tables of memory, revision by revision; `opening` brings a database to the newest one."""

VERSION_TABLE = "memory_alembic_version"
"""Not alembic's usual name: the ledger may live in the same database."""
