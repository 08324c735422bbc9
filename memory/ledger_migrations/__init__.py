"""The tables of the ledger, revision by revision; `opening` brings a database to the newest one."""

VERSION_TABLE = "ledger_alembic_version"
"""Not alembic's usual name: memory may live in the same database."""
