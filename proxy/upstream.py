"""The way to the model endpoint: aiohttp behind the `Upstream` protocol.

aiohttp's defaults are wrong for a proxy: no cookie jar (tenants would share it), no total timeout, no automatic
decompression, no URL re-quoting, no environment proxies, no limit on connections, no redirects.
"""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential
from yarl import URL

from agentspec.errors import UpstreamError
from agentspec.protocols import Headers, UpstreamRequest, UpstreamResponse
from agentspec.proxy.arrivals import Arrivals, Handler

_CONNECT_LIMIT_S = 10.0
_MAX_HEADER_BYTES = 2**17
_KEEP_ALIVE_S = 60.0
"""How long an idle connection is kept: most tools are done by then, and the next turn needs no new handshake."""


def _closed_unused(cause: BaseException | None) -> bool:
    """Whether a kept connection was closed before one byte of an answer came."""
    if isinstance(cause, aiohttp.ServerDisconnectedError):
        return cause.message == aiohttp.ServerDisconnectedError().message  # else it holds what had come
    return isinstance(cause, aiohttp.ClientOSError)


def _never_arrived(error: BaseException) -> bool:
    """Whether the endpoint cannot have seen the request, so that sending it once more is safe."""
    return isinstance(error, UpstreamError) and isinstance(error.__cause__, aiohttp.ClientConnectorError)


_RETRYING = AsyncRetrying(
    retry=retry_if_exception(_never_arrived),
    wait=wait_exponential(multiplier=0.05, max=0.2),
    stop=stop_after_attempt(4),
    reraise=True,
)
"""An endpoint that restarts refuses connections for a moment; one that is away is told of after a third of a second."""


@dataclass(slots=True)
class _Use:
    """Whether a request went over a connection that was kept from an earlier one."""

    reused: bool = False


_using: ContextVar[_Use] = ContextVar("_using")


class _Connector(aiohttp.TCPConnector):
    """Notes for each request whether its connection had been used before."""

    def __init__(self) -> None:
        super().__init__(limit=0, ttl_dns_cache=60, keepalive_timeout=_KEEP_ALIVE_S)
        made: type[ResponseHandler] = Handler
        self._factory = functools.partial(made, loop=self._loop)
        self._used: weakref.WeakSet[object] = weakref.WeakSet()

    async def connect(self, *args: Any, **kwargs: Any) -> aiohttp.connector.Connection:
        connection = await super().connect(*args, **kwargs)
        if connection.protocol in self._used:
            _using.get().reused = True
        elif connection.protocol is not None:
            self._used.add(connection.protocol)
        return connection


class AiohttpUpstream:
    """One endpoint. Open it inside a running event loop."""

    def __init__(self, base_url: str, silence_limit_s: float) -> None:
        self._base = base_url.rstrip("/")
        self._silence_limit_s = silence_limit_s
        self._session: aiohttp.ClientSession | None = None

    async def open(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request. Again only before the first byte of an answer and only where that is safe: no connection
        came about, or the endpoint had closed a kept connection just before we used it.
        """
        use = _Use()
        try:
            return await self._send(request, use)
        except UpstreamError as error:
            if use.reused and _closed_unused(error.__cause__):
                return await self._send(request, _Use())
            if not _never_arrived(error):
                raise
        return await _RETRYING(self._send, request, use)

    async def _send(self, request: UpstreamRequest, use: _Use) -> UpstreamResponse:
        session = self._session or self._start()
        _using.set(use)
        try:
            response = await session.request(
                request.method,
                _url(self._base + request.path),
                data=request.body or None,
                headers=[(name.decode("latin-1"), _as_text(value)) for name, value in request.headers],
                allow_redirects=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
        except aiohttp.ConnectionTimeoutError as error:
            raise UpstreamError(
                f"cannot connect to the endpoint {self._base} within {_CONNECT_LIMIT_S:g} s. Is it running?"
            ) from error
        except aiohttp.ServerDisconnectedError as error:
            raise UpstreamError(f"the endpoint {self._base} closed the connection before it answered") from error
        except TimeoutError as error:
            limit = f"{self._silence_limit_s:g} s"
            message = f"the endpoint {self._base} did not answer within {limit} (setting upstream_timeout_s)"
            raise UpstreamError(message, code="upstream_timeout", status=504) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            message = f"cannot reach the endpoint {self._base}: {error}. Is it running, and is --upstream right?"
            raise UpstreamError(message) from error
        return _Response(response, self._base, self._silence_limit_s)

    def _start(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            connector=_Connector(),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_LIMIT_S, sock_read=self._silence_limit_s),
            auto_decompress=False,
            trust_env=False,
            read_bufsize=2**18,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
        )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


class _Response:
    def __init__(self, response: aiohttp.ClientResponse, base: str, silence_limit_s: float) -> None:
        self._response = response
        self._base = base
        self._arrivals = Arrivals(response, silence_limit_s)
        self.status = response.status
        self._cut = _watch_for_a_cut(response)
        self.headers: Headers = [(name.lower(), value) for name, value in response.raw_headers]

    async def chunks(self) -> AsyncIterator[bytes]:
        with self._faults():
            while chunk := await self._arrivals.next():
                yield chunk
            self._check_cut()

    async def pour(self, take: Callable[[bytes], bool]) -> bool:
        with self._faults():
            whole = await self._arrivals.pour(take)
            if whole:
                self._check_cut()
            return whole

    def _check_cut(self) -> None:
        if self._cut is not None and self._cut.done() and (error := self._cut.exception()) is not None:
            raise aiohttp.ClientConnectionError(str(error))

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise UpstreamError("the endpoint fell silent", code="upstream_timeout", status=504) from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamError(f"the endpoint {self._base} broke off: {error}", code="upstream_broke_off") from error

    async def close(self) -> None:
        self._arrivals.over()
        if self._response.content.at_eof():
            self._response.release()
            return
        self._response.close()
        await asyncio.sleep(0)  # let the transport close its socket


def _watch_for_a_cut(response: aiohttp.ClientResponse) -> asyncio.Future[None] | None:
    """Tells an answer that ends with its connection from one that was cut off: aiohttp takes both for a good end."""
    framed = "content-length" in response.headers or "transfer-encoding" in response.headers
    connection = response.connection
    protocol = connection.protocol if connection is not None and not framed else None
    closed: asyncio.Future[None] | None = getattr(protocol, "closed", None)
    if closed is not None:
        closed.add_done_callback(lambda done: done.cancelled() or done.exception())
    return closed


@functools.lru_cache(maxsize=256)
def _url(text: str) -> URL:
    """Agents ask under few paths, again and again."""
    return URL(text, encoded=True)


def _as_text(value: bytes) -> str:
    """aiohttp writes header values as UTF-8, so what is UTF-8 keeps its bytes; the rest is read as Latin-1."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
