"""The way to one model endpoint: connections that are kept, requests that are sent again where that is safe.

No redirects, no cookies, no proxies of the environment, no limit on connections, nothing decompressed: what the agent
sent goes out, what the endpoint said comes back.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

import aiohappyeyeballs
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential

from agentspec.errors import UpstreamError
from agentspec.protocols import Headers, UpstreamRequest, UpstreamResponse
from agentspec.proxy.upstream_answer import Answer, BrokenOff, ClosedUnused
from agentspec.proxy.upstream_connection import Connection

_CONNECT_LIMIT_S = 10.0
_NEXT_ADDRESS_S = 0.25
"""A host's next address is tried after so long (RFC 8305, section 5)."""
_KEEP_ALIVE_S = 60.0
"""How long an idle connection is kept: most tools are done by then, and the next turn needs no new handshake."""
_PORTS = {"http": 80, "https": 443}
_PLAIN_IN_PATHS = "/%:@!$&'()*+,;=~"


class _NoConnection(Exception):
    """No connection came about, so the endpoint cannot have seen the request: sending it once more is safe."""


def _never_arrived(error: BaseException) -> bool:
    return isinstance(error, UpstreamError) and isinstance(error.__cause__, _NoConnection)


_RETRYING = AsyncRetrying(
    retry=retry_if_exception(_never_arrived),
    wait=wait_exponential(multiplier=0.05, max=0.2),
    stop=stop_after_attempt(4),
    reraise=True,
)
"""An endpoint that restarts refuses connections for a moment; one that is away is told of after a third of a second."""


@dataclass(frozen=True, slots=True)
class _Address:
    """Where an endpoint is, as a connection needs it."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    authority: bytes
    path: str

    @classmethod
    def of(cls, url: str) -> _Address:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna").decode()
        usual = _PORTS[parts.scheme]
        port = parts.port or usual
        named = f"[{host}]" if ":" in host else host
        authority = named if port == usual else f"{named}:{port}"
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        return cls(host, port, tls, authority.encode(), quote(parts.path, safe=_PLAIN_IN_PATHS))

    def head(self, request: UpstreamRequest) -> bytes:
        """A request's head as it goes out.

        Raises:
            ValueError: a header or the path has a line of its own.
        """
        target = (self.path + request.path).encode("latin-1") or b"/"
        lines = [b"%b %b HTTP/1.1" % (request.method.encode(), target), b"host: " + self.authority]
        lines += [b"%b: %b" % pair for pair in request.headers]
        if request.body or request.method not in ("GET", "HEAD", "OPTIONS", "TRACE"):
            lines.append(b"content-length: %d" % len(request.body))
        head = b"\r\n".join(lines)
        if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1:
            raise ValueError("a header holds a line break")
        return head + b"\r\n\r\n"


class HttpUpstream:
    """One endpoint. Use it inside a running event loop."""

    def __init__(self, base_url: str, silence_limit_s: float) -> None:
        self._base = base_url.rstrip("/")
        self._address = _Address.of(self._base)
        self._silence_limit_s = silence_limit_s
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._cleaner: asyncio.TimerHandle | None = None

    async def open(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request. Again only before the first byte of an answer and only where that is safe: no connection
        came about, or the endpoint had closed a kept connection just before we used it.
        """
        with self._faults():
            head = self._address.head(request)
        kept = self._kept()
        try:
            return await self._send(head, request, kept)
        except UpstreamError as error:
            if kept is not None and isinstance(error.__cause__, ClosedUnused):
                return await self._send(head, request)
            if not _never_arrived(error):
                raise
        return await _RETRYING(self._send, head, request)

    async def _send(self, head: bytes, request: UpstreamRequest, kept: Connection | None = None) -> UpstreamResponse:
        with self._faults():
            connection = kept or await self._connect()
            answer = connection.ask(head, request, self._silence_limit_s)
            try:
                await answer.head()
            except BaseException:
                await answer.close()
                raise
        return _Response(answer, self._base)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """What goes wrong before there is an answer, in words."""
        try:
            yield
        except TimeoutError as error:
            limit = f"{self._silence_limit_s:g} s"
            message = f"the endpoint {self._base} did not answer within {limit} (setting upstream_timeout_s)"
            raise UpstreamError(message, code="upstream_timeout", status=504) from error
        except ClosedUnused as error:
            raise UpstreamError(f"the endpoint {self._base} closed the connection before it answered") from error
        except (_NoConnection, OSError, ValueError) as error:
            message = f"cannot reach the endpoint {self._base}: {error}. Is it running, and is --upstream right?"
            raise UpstreamError(message) from error

    # Connections

    async def _connect(self) -> Connection:
        try:
            async with asyncio.timeout(_CONNECT_LIMIT_S):
                return await self._dial()
        except TimeoutError as error:
            message = f"cannot connect to the endpoint {self._base} within {_CONNECT_LIMIT_S:g} s. Is it running?"
            raise UpstreamError(message) from error
        except (OSError, RuntimeError) as error:  # RuntimeError: uvloop, where asyncio has an OSError
            raise _NoConnection(str(error)) from error

    async def _dial(self) -> Connection:
        loop, address = asyncio.get_running_loop(), self._address
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        sock = await aiohappyeyeballs.start_connection(found, happy_eyeballs_delay=_NEXT_ADDRESS_S)
        name = address.host if address.tls is not None else None
        made = functools.partial(Connection, self._free, self._all.discard)
        _, connection = await loop.create_connection(made, sock=sock, ssl=address.tls, server_hostname=name)
        if not connection.closing:
            self._all.add(connection)
        return connection

    def _kept(self) -> Connection | None:
        """A connection that has been used before, the latest first."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closing:
                return connection
        return None

    def _free(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.idle_since_s = loop.time()
        self._idle.append(connection)
        if self._cleaner is None:
            self._cleaner = loop.call_later(_KEEP_ALIVE_S, self._clean)

    def _clean(self) -> None:
        loop = asyncio.get_running_loop()
        young = loop.time() - _KEEP_ALIVE_S
        for connection in self._idle:
            if connection.idle_since_s <= young:
                connection.abort()
        self._idle = [one for one in self._idle if not one.closing]
        self._cleaner = None
        if self._idle:
            self._cleaner = loop.call_at(self._idle[0].idle_since_s + _KEEP_ALIVE_S, self._clean)

    async def close(self) -> None:
        """Close all connections."""
        if self._cleaner is not None:
            self._cleaner.cancel()
        for connection in list(self._all):
            connection.abort()
        await asyncio.sleep(0)  # the event loop closes sockets when its tasks have paused


class _Response:
    """An answer whose faults are told in words. Implements `UpstreamResponse`."""

    def __init__(self, answer: Answer, base: str) -> None:
        self._answer = answer
        self._base = base
        self.status = answer.status
        self.headers: Headers = answer.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        with self._faults():
            async for chunk in self._answer.chunks():
                yield chunk

    async def pour(self, take: Callable[[bytes], bool]) -> bool:
        with self._faults():
            return await self._answer.pour(take)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise UpstreamError("the endpoint fell silent", code="upstream_timeout", status=504) from error
        except BrokenOff as error:
            raise UpstreamError(f"the endpoint {self._base} broke off: {error}", code="upstream_broke_off") from error

    async def close(self) -> None:
        await self._answer.close()
