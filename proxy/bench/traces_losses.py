"""Rows that are neither kept nor counted as dropped: there must be none, whatever happens to the database."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from agentspec.errors import ConfigError
from agentspec.memory.ledger import SqlLedger
from agentspec.memory.ledger_reader import LedgerReader
from agentspec.proxy.bench.cable import Cable
from agentspec.proxy.bench.figures import Figure
from agentspec.proxy.bench.traces_lists import schema

Progress = Callable[[str], None]

_ROWS = 3_000
_QUEUE = 500
_GATHERED_S = 0.3


def uncounted_rows(folder: Path, postgres: str, progress: Progress) -> Figure:
    """Rows that were handed over less those that are kept and those that were counted as dropped, in all cases."""
    lost = _locked(folder / "losses.sqlite3", progress)
    try:
        with schema(postgres) as url:
            lost += _cut_off(url, progress)
    except (ConfigError, SQLAlchemyError, ModuleNotFoundError) as error:
        progress(f"a server that is cut off is left out: {str(error).splitlines()[0]}")
    return Figure("dropped_uncounted", lost, "rows")


def _locked(file: Path, progress: Progress) -> int:
    """SQLite, locked by somebody else while more rows come than the queue takes."""
    ledger = SqlLedger(f"sqlite:///{file}", max_queued=_QUEUE)
    with sqlite3.connect(file, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        _hand(ledger, 0)
        other.execute("COMMIT")
    _hand(ledger, _ROWS)
    return _uncounted(ledger, f"sqlite:///{file}", 2 * _ROWS, progress)


def _cut_off(url: str, progress: Progress) -> int:
    """PostgreSQL behind a cable that is pulled and plugged in again."""
    parsed = sa.make_url(url)
    with Cable(parsed.host or "127.0.0.1", parsed.port or 5432) as cable:
        there = parsed.set(host="127.0.0.1", port=cable.port)
        ledger = SqlLedger(there.render_as_string(hide_password=False), max_queued=_QUEUE)
        _hand(ledger, 0)
        cable.pull()
        _hand(ledger, _ROWS)
        cable.plug()
        _hand(ledger, 2 * _ROWS)
        return _uncounted(ledger, url, 3 * _ROWS, progress)


def _hand(ledger: SqlLedger, first: int) -> None:
    """Hand rows over, in bursts, and let the writer see some of them in between."""
    for number in range(first, first + _ROWS):
        ledger.record("turns", _row(number))
        if number % 1000 == 999:
            time.sleep(_GATHERED_S)


def _row(number: int) -> dict[str, Any]:
    return {
        "id": f"{number:016x}",
        "trajectory": f"run {number // 10}",
        "tenant": "bench",
        "began_at": float(number),
        "duration_s": 1.0,
        "status": 200,
        "note": "",
    }


def _uncounted(ledger: SqlLedger, url: str, handed: int, progress: Progress) -> int:
    asyncio.run(ledger.close())
    reader = LedgerReader(url)
    kept = len(reader.every_turn())
    reader.close()
    progress(f"{handed} rows handed over: {kept} kept, {ledger.dropped} counted as dropped")
    return abs(handed - kept - ledger.dropped)
