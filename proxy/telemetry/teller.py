"""Tells others what the ledger is told: a second reader of the same rows, with a queue and a thread of its own.

A database that hangs keeps nobody from seeing metrics, and a receiver that hangs keeps no row from the ledger.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from agentspec.batches import Batches
from agentspec.memory.ledger import prepared
from agentspec.protocols import Ledger

log = logging.getLogger("agentspec.telemetry")

_CLOSE_S = 3.0

Row = Mapping[str, Any]


class Sink(Protocol):
    """Takes rows. What it raises is logged, once for each kind."""

    def take(self, table: str, row: Row) -> None: ...


class Teller:
    """Hands rows to sinks. Implements `Ledger`.

    Args:
        plain: sinks that need no text of a row, so that none has to be made.
        told: sinks that get rows as they are written down, without secrets.
        closing: what is called when the last row has been told.
    """

    def __init__(
        self,
        plain: Sequence[Sink],
        told: Sequence[Sink] = (),
        closing: Sequence[Callable[[], None]] = (),
        max_queued: int = 10_000,
    ) -> None:
        self._plain, self._told, self._closing = plain, told, closing
        self._logged: set[str] = set()
        self._batches: Batches[tuple[str, Row]] = Batches("agentspec-telemetry", self._tell, max_queued=max_queued)

    @property
    def dropped(self) -> int:
        """Rows that others were not told of."""
        return self._batches.dropped

    def record(self, table: str, row: Row) -> None:
        """Queue a row."""
        self._batches.put((table, row))

    async def close(self) -> None:
        """Tell what is queued."""
        await self._batches.close()
        await asyncio.to_thread(self._close_all)

    def _close_all(self) -> None:
        """A receiver that is away is asked again and again; the end of the proxy does not wait for that."""
        ends = [threading.Thread(target=close, daemon=True) for close in self._closing]
        for end in ends:
            end.start()
            end.join(_CLOSE_S)

    def _tell(self, rows: Sequence[tuple[str, Row]]) -> None:
        for table, row in rows:
            for sink in self._plain:
                self._hand(sink, table, row)
            if self._told:
                ready = prepared(table, row)
                for sink in self._told:
                    self._hand(sink, table, ready)

    def _hand(self, sink: Sink, table: str, row: Row) -> None:
        try:
            sink.take(table, row)
        except Exception as error:
            kind = f"{type(sink).__name__}: {type(error).__name__}"
            if kind not in self._logged:
                self._logged.add(kind)
                log.warning("%s fails on a row of %s: %r", type(sink).__name__, table, error)


class Several:
    """Several ledgers as one."""

    def __init__(self, *ledgers: Ledger) -> None:
        self._ledgers = ledgers

    def record(self, table: str, row: Row) -> None:
        """Queue the row with each."""
        for ledger in self._ledgers:
            ledger.record(table, row)

    async def close(self) -> None:
        """Close them, in order."""
        for ledger in self._ledgers:
            await ledger.close()
