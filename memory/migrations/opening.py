"""Opens memory's database at its newest revision, by any number of processes at once; and bears it when it is away."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from agentspec.errors import ConfigError
from agentspec.memory.databases import Revisions, opening, tune_sqlite, upgrade, without_password
from agentspec.memory.migrations import VERSION_TABLE

log = logging.getLogger("agentspec.memory")

ADVISORY_LOCK = 0x6167656E74
"""PostgreSQL: one opener at a time."""

_REVISIONS = Revisions(Path(__file__).parent, VERSION_TABLE, "memory_database", ADVISORY_LOCK)


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
            tune_sqlite(engine, ["secure_delete=ON"])
        upgrade(engine, _REVISIONS)
        return engine


def _prepare_file(database: str | None, shown: str) -> None:
    """The file holds what end users said, so nobody else on this machine reads it."""
    if not database or ":memory:" in database or "mode=memory" in database:
        raise ConfigError(f"setting memory_database: {shown!r} keeps nothing; name a file")
    if not database.startswith("file:"):
        path = Path(database)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=True)


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
