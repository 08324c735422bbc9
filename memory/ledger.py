"""The books in SQL: every turn, probe, prediction, bet and claim with its outcome, times and reason.

Rows are written by one thread in batches, off the hot path. A queue that is full drops rows and counts them, and so
does a database that is away: what is lost is told in one line, and the next batch finds the database again.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from agentspec.batches import Batches
from agentspec.later import Later
from agentspec.memory.databases import WRITES
from agentspec.memory.ledger_opening import open_engine
from agentspec.memory.ledger_retention import KEEP_ALL, Keep, Retention
from agentspec.memory.ledger_runs import COLUMNS, sums_of, upsert
from agentspec.memory.ledger_tables import TABLES
from agentspec.redact import redact_text

log = logging.getLogger("agentspec.ledger")

Row = Mapping[str, Any]
Listener = Callable[[Sequence[tuple[str, Row]]], None]


class SqlLedger:
    """Writes the books."""

    def __init__(self, url: str, max_queued: int = 10_000, keep: Keep = KEEP_ALL) -> None:
        self._engine = open_engine(url).execution_options(**{WRITES: True})
        self._statements: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._upsert: Any = upsert(self._engine.dialect.name).compile(self._engine, column_keys=list(COLUMNS))
        self._listeners: list[Listener] = []
        self._away = False
        self.lost = 0
        self.retention = Retention(self._engine, keep)
        self._batches: Batches[tuple[str, Row]] = Batches(
            "agentspec-ledger", self._write, rest=self.retention.step, max_queued=max_queued
        )

    @property
    def dropped(self) -> int:
        """Rows that are not in the database: the queue was full, they did not fit, or the database was away."""
        return self._batches.dropped + self.lost

    @property
    def written(self) -> int:
        """Rows that are."""
        return self._batches.taken - self.lost

    @property
    def waiting(self) -> int:
        """Rows in the queue."""
        return self._batches.waiting

    def record(self, table: str, row: Row) -> None:
        self._batches.put((table, row), 1 + row["said"].weight if table == "contents" else 1)

    def listen(self, listener: Listener) -> None:
        """Tell somebody of every batch when it is in the database, in the thread that wrote it; he must not linger."""
        self._listeners.append(listener)

    async def close(self) -> None:
        await self._batches.close()
        self._engine.dispose()

    def _write(self, rows: Sequence[tuple[str, Row]]) -> None:
        """Write a batch; when that fails row by row, so that one bad row costs no other."""
        try:
            ready = [(name, prepared(name, row)) for name, row in rows]
            self._write_ready(ready)
        except Exception as error:
            if len(rows) > 1 and not isinstance(error, OperationalError):
                for one in rows:
                    self._write([one])
                return
            self._lose(len(rows), error)
            return
        if self._away:
            self._away = False
            log.info("the ledger's database answers again")
        for listener in self._listeners:
            listener(ready)

    def _lose(self, count: int, error: Exception) -> None:
        self.lost += count
        if not self._away:
            log.warning("the ledger lost %d rows: %s", count, str(error).splitlines()[0])
        self._away = isinstance(error, OperationalError)

    def _write_ready(self, rows: Sequence[tuple[str, dict[str, Any]]]) -> None:
        alike: defaultdict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
        for name, row in rows:
            alike[name, *row].append(row)
        runs = sums_of(rows)
        with self._engine.begin() as connection:
            for (name, *columns), some in alike.items():
                connection.exec_driver_sql(*self._insert(name, _told(columns, some), some))
            if runs:
                connection.exec_driver_sql(self._upsert.string, _parameters(self._upsert, runs))

    def _insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Row]) -> tuple[str, list[Any]]:
        """The statement and its rows as the driver takes them: row by row SQLAlchemy's own way costs ten times that."""
        key = (table, columns)
        if key not in self._statements:
            self._statements[key] = TABLES[table].insert().compile(self._engine, column_keys=_known(table, columns))
        return self._statements[key].string, _parameters(self._statements[key], rows)


def _parameters(statement: Any, rows: Sequence[Row]) -> list[Any]:
    order = statement.positiontup
    return [dict(row) for row in rows] if order is None else list(map(itemgetter(*order), rows))


def _told(columns: Sequence[str], rows: Sequence[Row]) -> tuple[str, ...]:
    """Those that any of the rows has a value for: what is null need not be told."""
    return tuple(name for name in columns if any(row[name] is not None for row in rows))


def _known(table: str, columns: Sequence[str]) -> list[str]:
    """The columns to insert; of contents, whose row names its run only to be counted, those that are there."""
    there = TABLES[table].c
    return [name for name in columns if name in there or table != "contents"]


_FREE_TEXTS = frozenset({"note", "reason", "outcome", "session", "tracestate"})
"""Columns with words of others: an endpoint's error, a tool's exception, a name that an agent gave."""

_TEXTS = {
    table.name: [
        (column.name, column.type.length, column.name in _FREE_TEXTS)
        for column in table.columns
        if isinstance(column.type, sa.String)
    ]
    for table in TABLES.values()
}
_SHORT = 12
"""A shorter text holds no secret that anybody could use."""


def prepared(table: str, row: Row) -> dict[str, Any]:
    """The row as it is written: values made, secrets taken out, texts cut to their columns' lengths."""
    found = dict(row)
    for name, length, free in _TEXTS[table]:
        value = found.get(name)
        if isinstance(value, Later):
            value = found[name] = value.value()
        if isinstance(value, str):
            if free and len(value) > _SHORT:
                value = found[name] = redact_text(value)
            if length is not None and len(value) > length:
                found[name] = value[:length]
    return found
