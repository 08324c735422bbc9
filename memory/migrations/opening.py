"""Opens memory's database at its newest revision, by any number of processes at once; and bears it when it is away."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random

from agentspec.errors import ConfigError
from agentspec.memory.ledger import opening, without_password
from agentspec.memory.migrations import VERSION_TABLE

log = logging.getLogger("agentspec.memory")

WRITES = "memory_writes"
"""Execution option of a connection that will write: SQLite locks then and there, not in the middle."""

ADVISORY_LOCK = 0x6167656E74
"""PostgreSQL: one opener at a time."""

_ALEMBIC = threading.Lock()  # alembic keeps its context in module globals


def open_engine(url: str) -> sa.Engine:
    """An engine with memory's tables in place, as this version knows them.

    Raises:
        ConfigError: the URL is no database that keeps something, its driver is missing, it cannot be reached, or a
            newer agentspec has written it.
    """
    shown = without_password(url)
    with opening("memory_database", url):
        parsed = sa.make_url(url)
        backend = parsed.get_backend_name()
        if backend not in ("sqlite", "postgresql"):
            raise ConfigError(f"setting memory_database: {shown!r} is neither SQLite nor PostgreSQL")
        if backend == "sqlite":
            _prepare_file(parsed.database, shown)
        engine = sa.create_engine(parsed, pool_pre_ping=True)
        if backend == "sqlite":
            event.listen(engine, "connect", _tune_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        _upgrade(engine, shown)
        return engine


def _prepare_file(database: str | None, shown: str) -> None:
    """The file holds what end users said, so nobody else on this machine reads it."""
    if not database or ":memory:" in database or "mode=memory" in database:
        raise ConfigError(f"setting memory_database: {shown!r} keeps nothing; name a file")
    if not database.startswith("file:"):
        path = Path(database)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=True)


def _tune_sqlite(connection: Any, _record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions begin where `_begin_sqlite` says
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout=5000")
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA secure_delete=ON")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def will_pass(error: BaseException) -> bool:
    """Whether the same may succeed a moment later: a lock, a writer that was faster, a connection that had died."""
    if isinstance(error, IntegrityError) or (isinstance(error, DBAPIError) and error.connection_invalidated):
        return True
    if not isinstance(error, OperationalError):
        return False
    code = getattr(error.orig, "sqlstate", None)
    return code in ("40001", "40P01", "55P03") or any(word in str(error.orig) for word in ("locked", "busy"))


again_when_locked = retry(
    retry=retry_if_exception(will_pass), stop=stop_after_attempt(5), wait=wait_random(0.02, 0.3), reraise=True
)


class Patience:
    """Lets nobody wait for a database that is away: that costs one line, and it is left alone for a while."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._away, self._again_at = False, 0.0

    @contextmanager
    def asking(self) -> Iterator[bool]:
        """Whether the database may be asked; errors of its in here are noted, and go no further."""
        may = not self._away or time.monotonic() >= self._again_at
        try:
            yield may
        except (SQLAlchemyError, OSError) as error:
            if not self._away:
                log.warning("memory: the database is away, nothing is kept: %s", str(error).splitlines()[0])
            self._away, self._again_at = True, time.monotonic() + self._pause_s
        else:
            if self._away and may:
                self._away = False
                log.info("memory: the database answers again")


@again_when_locked
def _upgrade(engine: sa.Engine, shown: str) -> None:
    with _ALEMBIC, engine.execution_options(**{WRITES: True}).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY_LOCK)))
        _upgrade_locked(connection, shown)


def _upgrade_locked(connection: sa.Connection, shown: str) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)
    known = {script.revision for script in scripts.walk_revisions()}
    there = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_heads()
    if strange := sorted(set(there) - known):
        raise ConfigError(
            f"setting memory_database: {shown!r} was written by a newer agentspec (revision {strange[0]!r}, this one"
            f" knows up to {scripts.get_current_head()!r}); upgrade agentspec, or choose another database"
        )
    if set(there) == set(scripts.get_heads()):
        return
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
