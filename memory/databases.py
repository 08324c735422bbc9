"""Databases as the ledger and memory open them: SQLite tuned, errors in one line, tables at their newest revision."""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random

from agentspec.errors import ConfigError

WRITES = "memory_writes"
"""Execution option of a connection that will write: SQLite locks then and there, not in the middle."""

_ALEMBIC = threading.Lock()  # alembic keeps its context in module globals


@contextmanager
def opening(setting: str, url: str) -> Generator[None, None, None]:
    """Says of a database that cannot be opened which setting names it, and what to do.

    Raises:
        ConfigError: the URL is no database, its driver is missing, or it cannot be reached.
    """
    shown = without_password(url)
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"setting {setting}: {shown!r} needs {error.name}; pip install 'agentspec-proxy[postgres]'"
        ) from error
    except (SQLAlchemyError, OSError) as error:
        first = str(error).splitlines()[0]
        raise ConfigError(f"setting {setting}: cannot open {shown!r}: {first}") from error


def without_password(url: str) -> str:
    """A database URL as it may be shown."""
    try:
        return sa.make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return re.sub(r"//[^/@]*@", "//***@", url)


def tune_sqlite(engine: sa.Engine, pragmas: Sequence[str] = ()) -> None:
    """Have its connections wait for each other, write ahead (WAL), and begin their transactions where they say."""

    def tune(connection: Any, _record: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # transactions begin where `begin` says
        cursor = connection.cursor()
        for pragma in ("busy_timeout=5000", "journal_mode=WAL", "synchronous=NORMAL", *pragmas):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    event.listen(engine, "connect", tune)
    event.listen(engine, "begin", _begin_sqlite)


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


@dataclass(frozen=True, slots=True)
class Revisions:
    """The revisions of one set of tables.

    Attributes:
        folder: where their scripts lie.
        version_table: where a database keeps which of them it has reached.
        setting: what names the database.
        lock: PostgreSQL's advisory lock under which one opener at a time migrates.
        before: the revision that a database with these tables but without a version table is at; None: none is.
    """

    folder: Path
    version_table: str
    setting: str
    lock: int
    before: str | None = None


@again_when_locked
def upgrade(engine: sa.Engine, revisions: Revisions) -> None:
    """Bring the tables to the newest revision; any number of processes may do so at once.

    Raises:
        ConfigError: a newer agentspec has written the database.
    """
    with _ALEMBIC, engine.execution_options(**{WRITES: True}).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(revisions.lock)))
        _upgrade_locked(connection, revisions)


def _upgrade_locked(connection: sa.Connection, revisions: Revisions) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(revisions.folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)
    known = {script.revision for script in scripts.walk_revisions()}
    there = MigrationContext.configure(connection, opts={"version_table": revisions.version_table}).get_current_heads()
    if strange := sorted(set(there) - known):
        shown = connection.engine.url.render_as_string(hide_password=True)
        raise ConfigError(
            f"setting {revisions.setting}: {shown!r} was written by a newer agentspec (revision {strange[0]!r}, this"
            f" one knows up to {scripts.get_current_head()!r}); upgrade agentspec, or choose another database"
        )
    if set(there) == set(scripts.get_heads()):
        return
    config.attributes["connection"] = connection
    if not there and revisions.before is not None:
        command.stamp(config, revisions.before)
    command.upgrade(config, "head")
