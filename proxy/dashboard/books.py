"""The ledger as the dashboard reads it: opened when it is first looked at, by one thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from agentspec.memory.ledger import SqlLedger
from agentspec.memory.ledger_queries import Queries
from agentspec.memory.ledger_reader import LedgerReader
from agentspec.memory.ledger_sums import Sums
from agentspec.protocols import Ledger
from agentspec.proxy.dashboard.feed import Bell


@dataclass(frozen=True, slots=True)
class OpenBooks:
    """The ledger, to be asked. Whatever is asked of it may block."""

    reader: LedgerReader
    sums: Sums
    queries: Queries


class LedgerSource:
    """Where the books are read.

    Attributes:
        ledger: who writes them in this process, None where nobody does.
        written: is rung when something has been written.
    """

    def __init__(self, url: str, ledger: Ledger | None) -> None:
        self.url, self.ledger = url, ledger
        self.written = Bell()
        if isinstance(ledger, SqlLedger):
            ledger.listen(lambda rows: self.written.ring())
        self._lock = threading.Lock()
        self._books: OpenBooks | None = None

    def open(self) -> OpenBooks:
        """The books.

        Raises:
            ConfigError: the database cannot be opened.
        """
        with self._lock:
            if self._books is None:
                reader = LedgerReader(self.url)
                self._books = OpenBooks(reader, Sums(reader), Queries(reader))
            return self._books

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            if self._books is not None:
                self._books.reader.close()
            self._books = None
