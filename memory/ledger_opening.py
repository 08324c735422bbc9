"""Opens the ledger's database at its newest revision, from whatever version of agentspec it comes."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from agentspec.errors import ConfigError
from agentspec.memory import ledger_migrations
from agentspec.memory.databases import Revisions, opening, tune_sqlite, upgrade, without_password
from agentspec.memory.ledger_migrations import VERSION_TABLE

ADVISORY_LOCK = 0x6C6564676572
"""PostgreSQL: one opener at a time."""

CONNECT_S = 5
"""Longest time that a server may take to answer; whoever waits for it is no turn, but the rows pile up."""

_FOLDER = Path(ledger_migrations.__file__).parent

_FIRST = {
    "turns": {"id", "trajectory", "runtime", "model", "began_at", "first_byte_s", "call_s", "duration_s", "status"},
    "probes": {"id", "turn", "started_s", "duration_s", "prompt_tokens", "completion_tokens", "outcome"},
    "bets": {"id", "turn", "predictor", "tool", "arguments", "probability", "verdict", "offered_s", "outcome"},
    "claims": {"id", "turn", "tool", "effect", "bet", "outcome", "began_s", "waited_s", "latency_s", "reason"},
}
"""By what the tables of a ledger without revisions are told from somebody else's."""


def open_engine(url: str) -> sa.Engine:
    """An engine with our tables in place.

    Raises:
        ConfigError: the URL is no database, its driver is missing, it cannot be reached, its tables are somebody
            else's, or a newer agentspec has written it.
    """
    with opening("database", url):
        parsed = sa.make_url(url)
        backend = parsed.get_backend_name()
        if backend == "sqlite" and parsed.database and parsed.database != ":memory:":
            Path(parsed.database).expanduser().parent.mkdir(parents=True, exist_ok=True)
        if backend == "postgresql" and "connect_timeout" not in parsed.query:
            parsed = parsed.update_query_dict({"connect_timeout": str(CONNECT_S)})
        engine = sa.create_engine(parsed, pool_pre_ping=True)
        if backend == "sqlite":
            tune_sqlite(engine)
        before = _unversioned(engine, url)
        upgrade(engine, Revisions(_FOLDER, VERSION_TABLE, "database", ADVISORY_LOCK, before))
        return engine


def _unversioned(engine: sa.Engine, url: str) -> str | None:
    """The revision of a ledger from before there were any; None where there is no ledger yet, or one with revisions.

    Raises:
        ConfigError: a table of our names is not ours.
    """
    inspector = sa.inspect(engine)
    names = set(inspector.get_table_names())
    if VERSION_TABLE in names or not names & _FIRST.keys():
        return None
    for table, needed in _FIRST.items():
        there = {column["name"] for column in inspector.get_columns(table)} if table in names else set[str]()
        if missing := sorted(needed - there):
            raise ConfigError(
                f"setting database: {without_password(url)!r} has a table {table!r} that is no ledger's"
                f" (no column {missing[0]!r}); choose another database with --database"
            )
    return "0001"
