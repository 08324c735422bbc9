"""The books in SQL: every turn, probe, bet and claim with its outcome, times and reason.

Rows are written by one thread in batches, off the hot path. A queue that is full drops rows and counts them.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import re
import threading
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_fixed

from agentspec.errors import ConfigError

log = logging.getLogger("agentspec.ledger")

_metadata = sa.MetaData()

TURNS = sa.Table(
    "turns",
    _metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("trajectory", sa.String(200), index=True, nullable=False),
    sa.Column("runtime", sa.String(16)),
    sa.Column("model", sa.String(200)),
    sa.Column("began_at", sa.Float, index=True, nullable=False),
    sa.Column("first_byte_s", sa.Float),
    sa.Column("call_s", sa.Float),
    sa.Column("duration_s", sa.Float),
    sa.Column("status", sa.Integer),
    sa.Column("calls", sa.Integer),
    sa.Column("prompt_tokens", sa.Integer),
    sa.Column("completion_tokens", sa.Integer),
    sa.Column("held_out", sa.Boolean),
    sa.Column("probe_verdict", sa.String(300)),
    sa.Column("note", sa.String(300)),
)
"""A model request and its answer. `held_out`: its trajectory ran without speculation.

`began_at` is Unix time in seconds, the other times count from it."""

PROBES = sa.Table(
    "probes",
    _metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("turn", sa.String(32), index=True, nullable=False),
    sa.Column("started_s", sa.Float),
    sa.Column("duration_s", sa.Float),
    sa.Column("prompt_tokens", sa.Integer),
    sa.Column("completion_tokens", sa.Integer),
    sa.Column("outcome", sa.String(300)),
)
"""A forked generation that predicts; times in seconds from the turn's start."""

BETS = sa.Table(
    "bets",
    _metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("turn", sa.String(32), index=True, nullable=False),
    sa.Column("predictor", sa.String(40), nullable=False),
    sa.Column("tool", sa.String(200), nullable=False),
    sa.Column("tier", sa.String(4)),
    sa.Column("egress", sa.Boolean),
    sa.Column("arguments", sa.Text),
    sa.Column("name_confidence", sa.Float),
    sa.Column("argument_confidence", sa.Float),
    sa.Column("probability", sa.Float),
    sa.Column("verdict", sa.String(300)),
    sa.Column("offered_s", sa.Float),
    sa.Column("latency_s", sa.Float),
    sa.Column("waited_s", sa.Float),
    sa.Column("settled_s", sa.Float),
    sa.Column("saved_s", sa.Float),
    sa.Column("cost_s", sa.Float),
    sa.Column("outcome", sa.String(12), index=True, nullable=False),
    sa.Column("reason", sa.String(300)),
)
"""A prediction and what became of it: hit, joined, miss, stale, failed, vetoed or unclaimed. `egress`: its arguments
told a third party something."""

CLAIMS = sa.Table(
    "claims",
    _metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("turn", sa.String(32), index=True),
    sa.Column("tool", sa.String(200), nullable=False),
    sa.Column("effect", sa.String(12)),
    sa.Column("bet", sa.String(32)),
    sa.Column("outcome", sa.String(12), nullable=False),
    sa.Column("began_s", sa.Float),
    sa.Column("waited_s", sa.Float),
    sa.Column("latency_s", sa.Float),
    sa.Column("reason", sa.String(300)),
)
"""A real call of a declared tool; `began_s` in seconds from the start of the turn that asked for it."""

_TABLES = {table.name: table for table in (TURNS, PROBES, BETS, CLAIMS)}


def open_engine(url: str) -> sa.Engine:
    """An engine with our tables in place.

    Raises:
        ConfigError: the URL is no database, its driver is missing, or it cannot be reached.
    """
    with opening("database", url):
        parsed = sa.make_url(url)
        if parsed.get_backend_name() == "sqlite" and parsed.database and parsed.database != ":memory:":
            Path(parsed.database).expanduser().parent.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(parsed, pool_pre_ping=True)
        if parsed.get_backend_name() == "sqlite":
            event.listen(engine, "connect", _tune_sqlite)
        _create_tables(engine)
        _refuse_strangers(engine, url)
        return engine


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


@retry(retry=retry_if_exception_type(DBAPIError), stop=stop_after_attempt(4), wait=wait_fixed(0.2), reraise=True)
def _create_tables(engine: sa.Engine) -> None:
    """Two proxies that start together both find the tables missing; the slower one finds them there the next time."""
    _metadata.create_all(engine)


def _refuse_strangers(engine: sa.Engine, url: str) -> None:
    """A database may hold tables of our names that are somebody else's, or of another version."""
    inspector = sa.inspect(engine)
    for table in _TABLES.values():
        there = {column["name"] for column in inspector.get_columns(table.name)}
        if missing := sorted({column.name for column in table.columns} - there):
            raise ConfigError(
                f"setting database: {without_password(url)!r} has a table {table.name!r} that is not this version's"
                f" (no column {missing[0]!r}); choose another database with --database"
            )


def without_password(url: str) -> str:
    """A database URL as it may be shown."""
    try:
        return sa.make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return re.sub(r"//[^/@]*@", "//***@", url)


def _tune_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA busy_timeout=5000")
    cursor.close()


_GATHER_S = 0.1
_MAX_BATCH = 2000


class SqlLedger:
    """Writes the books."""

    def __init__(self, url: str, max_queued: int = 10_000) -> None:
        self._engine = open_engine(url)
        self._queue: queue.SimpleQueue[tuple[str, Mapping[str, Any]] | None] = queue.SimpleQueue()
        self._max_queued = max_queued
        self._closing = threading.Event()
        self._statements: dict[tuple[str, tuple[str, ...]], Any] = {}
        self.dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="agentspec-ledger", daemon=True)
        self._thread.start()

    def record(self, table: str, row: Mapping[str, Any]) -> None:
        if self._queue.qsize() >= self._max_queued:
            self.dropped += 1
        else:
            self._queue.put((table, row))

    async def close(self) -> None:
        try:
            await asyncio.to_thread(self._close)
        except RuntimeError:  # the interpreter is ending and starts no more threads
            self._close()

    def _close(self) -> None:
        self._closing.set()
        self._queue.put(None)
        self._thread.join(timeout=10.0)
        self._engine.dispose()

    def _write_all(self) -> None:
        open_ = True
        while open_:
            batch = [self._queue.get()]
            self._closing.wait(_GATHER_S)  # one transaction for what comes in a row
            while len(batch) < _MAX_BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            open_ = None not in batch
            self._write([row for row in batch if row is not None])

    def _insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Mapping[str, Any]]) -> tuple[str, list[Any]]:
        """The statement and its rows as the driver takes them: row by row SQLAlchemy's own way costs ten times that."""
        key = (table, columns)
        if key not in self._statements:
            self._statements[key] = _TABLES[table].insert().compile(self._engine, column_keys=list(columns))
        statement = self._statements[key]
        order = statement.positiontup
        parameters = (
            [dict(row) for row in rows] if order is None else [tuple(row[name] for name in order) for row in rows]
        )
        return statement.string, parameters

    def _write(self, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Write a batch; when that fails row by row, so that one bad row costs no other."""
        try:
            alike: defaultdict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
            for name, row in rows:
                alike[name, *row].append(_clipped(name, row))
            with self._engine.begin() as connection:
                for (name, *columns), clipped in alike.items():
                    connection.exec_driver_sql(*self._insert(name, tuple(columns), clipped))
        except Exception as error:
            if len(rows) > 1 and not isinstance(error, OperationalError):
                for one in rows:
                    self._write([one])
                return
            self.dropped += len(rows)
            log.warning("the ledger lost %d rows: %s", len(rows), str(error).splitlines()[0])


_LENGTHS = {
    table.name: {column.name: getattr(column.type, "length", None) for column in table.columns}
    for table in _TABLES.values()
}


def _clipped(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with texts cut to their columns' lengths."""
    lengths = _LENGTHS[table]
    return {name: value[: lengths[name]] if isinstance(value, str) else value for name, value in row.items()}
