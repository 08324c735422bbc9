"""An endpoint's answer: handed on in the step in which its bytes were read off the socket.

The usual way, a task that waits for each chunk, takes several turns of the event loop for every one, and most are a
word long. Here whoever takes them is called as soon as they are there.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from typing import Protocol

Take = Callable[[bytes], bool]
"""Given the next bytes; false: whoever they are for cannot take more for now."""

_MAX_HELD_BYTES = 2**18
"""Of an answer that nobody takes so much is read at most, about."""


class BrokenOff(ConnectionError):
    """The connection ended before the answer did, or what came was no answer."""


class ClosedUnused(BrokenOff):
    """It ended before one byte of the answer had come."""


class Tap(Protocol):
    """What an answer comes out of."""

    def abort(self) -> None:
        """Close it at once."""
        ...

    def pause(self) -> None:
        """Let no more come for now."""
        ...

    def resume(self) -> None:
        """Let it come again."""
        ...


class Answer:
    """What comes back for one request.

    Args:
        tap: the connection that the request went over.
        silence_limit_s: longest wait for the next bytes. When they came is noted; to set a timer for each would cost
            more.

    Attributes:
        status, headers: once `head` has returned; before that the status is 0. Names in lower case.
    """

    def __init__(self, tap: Tap, silence_limit_s: float) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._tap = tap
        self._limit_s = silence_limit_s
        self._loop = asyncio.get_running_loop()
        self._whole = self._full = False
        self._error: Exception | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._take: Take | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._waits_since_s = math.inf
        self._timer = self._loop.call_later(silence_limit_s, self._look)

    async def head(self) -> None:
        """Wait for status and headers.

        Raises:
            TimeoutError: nothing came within the limit.
            BrokenOff: what came was no answer, or nothing came and the connection ended.
        """
        while not (self.status or self._error):
            await self._wait()
        if not self.status:
            self._raise()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives.

        Raises:
            TimeoutError, BrokenOff: as above, in mid-answer.
        """
        while True:
            if self._held:
                yield self._taken()
            elif self._error is not None:
                self._raise()
            elif self._whole:
                return
            else:
                await self._wait()

    async def pour(self, take: Take) -> bool:
        """Hand on what comes, as it comes, until all has come; false: until it could not be taken.

        Raises:
            TimeoutError, BrokenOff: as above, in mid-answer.
            Exception: what `take` raised.
        """
        self._full, self._take = False, take
        try:
            self._hand_on()
            while not (self._full or self._whole or self._error):
                await self._wait()
        finally:
            self._take = None
        if self._error is not None:
            self._raise()
        return not self._full

    async def close(self) -> None:
        """Be done with it. Before its end that ends the connection, which tells the endpoint to stop."""
        self._timer.cancel()
        if not self._whole:
            self._tap.abort()
            await asyncio.sleep(0)  # the event loop closes the socket when its tasks have paused

    # What the connection tells

    def came(self) -> None:
        """Its next bytes have been read off the socket and parsed."""
        if self._take is not None:
            self._hand_on()
            self._waits_since_s = self._loop.time()
        if self._held_bytes > _MAX_HELD_BYTES and not self._whole:  # else the connection is another answer's
            self._tap.pause()
        if self._take is None or self._full or self._whole or self._error:
            self._wake()

    def on_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Status and headers."""
        self.status, self.headers = status, headers

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._held.append(data)
        self._held_bytes += len(data)

    def on_whole(self) -> None:
        """The end."""
        self._whole = True
        self._timer.cancel()

    def on_fault(self, error: Exception) -> None:
        """There will be no more."""
        if not (self._whole or self._error):
            self._error = error
            self._timer.cancel()
            self._wake()

    # Who waits

    def _hand_on(self) -> None:
        if self._held and not self._full and self._take is not None:
            try:
                self._full = not self._take(self._taken())
            except Exception as error:  # the taker's own: it waits in `pour`
                self.on_fault(error)

    def _taken(self) -> bytes:
        held = self._held
        data = held[0] if len(held) == 1 else b"".join(held)
        held.clear()
        self._held_bytes = 0
        if not self._whole:
            self._tap.resume()
        return data

    async def _wait(self) -> None:
        self._waits_since_s = self._loop.time()
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter, self._waits_since_s = None, math.inf

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _raise(self) -> None:
        assert self._error is not None
        raise self._error

    def _look(self) -> None:
        silent_s = max(0.0, self._loop.time() - self._waits_since_s)
        if silent_s < self._limit_s:
            self._timer = self._loop.call_later(self._limit_s - silent_s, self._look)
            return
        self.on_fault(TimeoutError("nothing came"))
        self._tap.abort()
