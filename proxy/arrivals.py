"""An answer's bytes as aiohttp reads them off the socket: handed on at once, and watched for silence.

The usual way, a task that waits for each chunk, takes several turns of the event loop for every one, and most are a
word long. Here whoever takes them is called as soon as they are there.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import aiohttp
from aiohttp.client_proto import ResponseHandler

Take = Callable[[bytes], bool]
"""Given the next bytes; false: whoever they are for cannot take more for now."""


class Handler(ResponseHandler):
    """aiohttp's protocol, which tells at once that something has arrived, or that nothing will any more."""

    arrived: Callable[[], None] | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.arrived is not None:
            self.arrived()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self.arrived is not None:
            self.arrived()


class Arrivals:
    """The body of one answer.

    Args:
        response: its status and headers are known.
        silence_limit_s: longest wait for more. aiohttp has a limit of its own, and sets its timer anew for each chunk;
            to note when each came costs less.
    """

    def __init__(self, response: aiohttp.ClientResponse, silence_limit_s: float) -> None:
        connection = response.connection  # none any more where all of it has come already
        protocol = connection.protocol if connection is not None else None
        self._handler = protocol if isinstance(protocol, Handler) else Handler(asyncio.get_running_loop())
        self._handler.read_timeout = None
        self._content = response.content
        self._limit_s = silence_limit_s
        self._loop = asyncio.get_running_loop()
        self._waits_since_s = math.inf
        self._timer = self._loop.call_later(silence_limit_s, self._look)

    async def next(self) -> bytes:
        """The next bytes, none at the end.

        Raises:
            TimeoutError: nothing came within the limit.
            aiohttp.ClientError: the endpoint broke off.
        """
        self._waits_since_s = self._loop.time()
        try:
            return await self._content.readany()
        finally:
            self._waits_since_s = math.inf

    async def pour(self, take: Take) -> bool:
        """Hand on what comes, as it comes, until all has come; false: until it could not be taken.

        Raises:
            TimeoutError: nothing came within the limit.
            aiohttp.ClientError: the endpoint broke off.
        """
        done: asyncio.Future[bool] = self._loop.create_future()
        busy = False

        def arrived() -> None:
            nonlocal busy
            if busy or done.done():  # to read may bring more, which is not its turn yet
                return
            busy = True
            self._hand_on(take, done)
            busy = False

        self._handler.arrived = arrived
        try:
            arrived()
            return await done
        finally:
            self._handler.arrived, self._waits_since_s = None, math.inf

    def _hand_on(self, take: Take, done: asyncio.Future[bool]) -> None:
        content = self._content
        try:
            while chunk := content.read_nowait():
                if not take(chunk):
                    done.set_result(False)
                    return
            self._waits_since_s = self._loop.time()
            if content.at_eof():
                done.set_result(True)
        except Exception as error:
            done.set_exception(error)

    def over(self) -> None:
        """The answer is done with."""
        self._timer.cancel()

    def _look(self) -> None:
        silent_s = max(0.0, self._loop.time() - self._waits_since_s)
        if silent_s < self._limit_s:
            self._timer = self._loop.call_later(self._limit_s - silent_s, self._look)
            return
        self._content.set_exception(TimeoutError("nothing came"))
        if self._handler.arrived is not None:
            self._handler.arrived()
