"""When relayed answers are read: a little later than they go out, several chunks at a time.

To read a chunk takes as long as to relay it, and most say only a word more. So chunks wait for the next round, in which
all answers are read as far as they have gone out. Nobody acts on what is unread: whoever has to know what was said
(a runtime's message, the next request) has everything read first, and what shows a call is read at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

ROUND_S = 0.04
"""Longest wait of a chunk: little beside the seconds for which runs are worth it."""
_MOST_BYTES = 2**16
"""As much of one answer waits at most."""


class Rounds:
    """The answers of one proxy that have something unread. One event loop."""

    def __init__(self) -> None:
        self._unread: dict[Reading, None] = {}
        self._due = False

    def add(self, reading: Reading) -> None:
        """It is read in the next round."""
        self._unread[reading] = None
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(ROUND_S, self._round)

    def catch_up(self) -> None:
        """Read all that has gone out."""
        while self._unread:
            self._unread.popitem()[0].now()

    def _round(self) -> None:
        self._due = False
        self.catch_up()


class Reading:
    """One answer as it is read. `read` is given what has gone out since the last time, and never raises."""

    def __init__(self, rounds: Rounds, read: Callable[[bytes], None]) -> None:
        self._rounds = rounds
        self._read = read
        self._chunks: list[bytes] = []
        self._bytes = 0
        self._soon = False

    def add(self, chunk: bytes, *, at_once: bool) -> None:
        """A chunk goes out. `at_once`: as soon as it has gone, and with it what waits."""
        if not self._chunks:
            self._rounds.add(self)
        self._chunks.append(chunk)
        self._bytes += len(chunk)
        if (at_once or self._bytes > _MOST_BYTES) and not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self.now)

    def now(self) -> None:
        """Read what has gone out."""
        chunks, self._chunks = self._chunks, []
        self._bytes, self._soon = 0, False
        if chunks:
            self._read(chunks[0] if len(chunks) == 1 else b"".join(chunks))
