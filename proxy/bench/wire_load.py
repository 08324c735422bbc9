"""The load generator: connections that are kept, each asking again as soon as its answer is complete.

It runs on the event loop of whoever measures, does as little as it can for each request, and notes times of the
monotonic clock: when a request went out, when the first chunk came, how long each stamped chunk was under way, and when
the answer was complete.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import httptools

from agentspec.proxy.bench.wire_endpoint import STAMP

KEY = "bench-key"
_STAMP_BYTES = 21
_PATIENCE_S = 60.0
_NS_PER_MS = 1e6
_SDK_HEADERS = (
    "accept: application/json\r\naccept-encoding: identity\r\ncontent-type: application/json\r\n"
    "user-agent: OpenAI/Python 2.0.0\r\nx-stainless-lang: python\r\nx-stainless-package-version: 2.0.0\r\n"
    "x-stainless-os: Linux\r\nx-stainless-arch: x64\r\nx-stainless-runtime: CPython\r\n"
    "x-stainless-runtime-version: 3.11.7\r\nx-stainless-async: async:asyncio\r\nx-stainless-retry-count: 0\r\n"
    "x-stainless-read-timeout: 600\r\n"
)


class LoadFailed(Exception):
    """An answer other than 200, a broken connection, or none in time."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go: a loopback port and a path."""

    port: int
    path: str = "/v1/chat/completions"

    @property
    def head(self) -> bytes:
        """A request's head up to the length of its body."""
        lines = f"POST {self.path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\nauthorization: Bearer {KEY}\r\n"
        return f"{lines}{_SDK_HEADERS}content-length: ".encode()


@dataclass(slots=True)
class Sample:
    """What was seen in one window: the time to each whole answer, to the first chunk of each stream, and for how long
    each later chunk was under way, all in ms. `elapsed_s` reaches from the first request to the last answer.
    """

    latency_ms: list[float] = field(default_factory=list)
    ttft_ms: list[float] = field(default_factory=list)
    chunk_ms: list[float] = field(default_factory=list)
    elapsed_s: float = 0.0

    @property
    def requests(self) -> int:
        return len(self.latency_ms)

    @property
    def rps(self) -> float:
        """Answers per second."""
        return self.requests / self.elapsed_s if self.elapsed_s else 0.0


class _Connection(asyncio.Protocol):
    def __init__(self, target: Target, bodies: Iterator[bytes]) -> None:
        self._head = target.head
        self._bodies = bodies
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._sample = Sample()
        self._done: asyncio.Future[None] | None = None
        self._until_ns = self._sent_ns = self._now_ns = 0
        self._waiting_for_first = False
        self._tail = b""

    def begin(self, sample: Sample, until_ns: int, after_s: float) -> asyncio.Future[None]:
        """Ask until that time, the first time after so many seconds; the future is done when the last answer is."""
        loop = asyncio.get_running_loop()
        self._sample, self._until_ns, self._done = sample, until_ns, loop.create_future()
        if self._transport is None:
            self._fail("the connection is closed")
        loop.call_later(after_s, self._ask)
        return self._done

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by class

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(f"a connection was closed: {exc}")

    def data_received(self, data: bytes) -> None:
        self._now_ns = time.monotonic_ns()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"not HTTP: {error}")

    def on_body(self, body: bytes) -> None:
        text = self._tail + body if self._tail else body
        end = 0
        for stamp in STAMP.finditer(text):
            end = stamp.end()
            if self._waiting_for_first:
                self._waiting_for_first = False
                self._sample.ttft_ms.append((self._now_ns - self._sent_ns) / _NS_PER_MS)
            else:
                self._sample.chunk_ms.append((self._now_ns - int(stamp[1])) / _NS_PER_MS)
        self._tail = text[max(end, len(text) - _STAMP_BYTES + 1) :]

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status != 200:
            self._fail(f"status {status}: {self._tail!r}")
            return
        self._sample.latency_ms.append((self._now_ns - self._sent_ns) / _NS_PER_MS)
        if self._now_ns < self._until_ns:
            self._ask()
        elif self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _ask(self) -> None:
        if self._transport is None:
            return
        body = next(self._bodies)
        self._tail, self._waiting_for_first = b"", True
        self._sent_ns = time.monotonic_ns()
        self._transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))

    def _fail(self, why: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(LoadFailed(why))


class Pool:
    """Some connections to one target; made by `connected`."""

    def __init__(self, connections: Sequence[_Connection]) -> None:
        self._connections = connections

    async def run(self, seconds: float, spread_s: float = 0.0) -> Sample:
        """Ask on all connections for so long, their first requests spread over `spread_s`.

        Raises:
            LoadFailed: an answer was not 200, or a connection broke.
        """
        sample, began_ns = Sample(), time.monotonic_ns()
        until_ns = began_ns + int(seconds * 1e9)
        step_s = spread_s / len(self._connections)
        gc.disable()
        try:
            async with asyncio.timeout(seconds + _PATIENCE_S):
                await asyncio.gather(*(c.begin(sample, until_ns, i * step_s) for i, c in enumerate(self._connections)))
        except TimeoutError as error:
            raise LoadFailed(f"no answer within {_PATIENCE_S:.0f} s") from error
        finally:
            gc.enable()
        sample.elapsed_s = (time.monotonic_ns() - began_ns) / 1e9
        return sample

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


async def connected(target: Target, requests: Sequence[Iterator[bytes]]) -> Pool:
    """Connect once for each of these, which are the bodies that the connection asks with."""
    loop = asyncio.get_running_loop()
    connections = []
    for bodies in requests:
        make = partial(_Connection, target, bodies)
        _, connection = await loop.create_connection(make, "127.0.0.1", target.port)
        connections.append(connection)
    return Pool(connections)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which this share of the values lies, interpolated; None for none.

    >>> percentile([1.0, 2.0, 3.0], 0.5), percentile([1.0, 2.0], 0.25), percentile([], 0.5)
    (2.0, 1.25, None)
    """
    if not values:
        return None
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)
