"""httpx transports that go through the proxy while it is there and straight to the endpoint when it is not."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

log = logging.getLogger("agentspec.transport")

_GONE = (httpx.ConnectError, httpx.ConnectTimeout, httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
"""What a request ends in, before any answer, when the proxy is away or dies."""

_AVOID_S = 2.0
"""After a failure, go straight to the endpoint for this long before trying the proxy again."""


@dataclass(frozen=True, slots=True)
class Route:
    """Two base URLs for the same requests, each with its `/v1`. An empty `endpoint` means there is no other way."""

    proxy: str
    endpoint: str


class _Chooser:
    """Rewrites a request for one of the two ways and remembers that the proxy was away."""

    def __init__(self, route: Callable[[], Route]) -> None:
        self._route = route
        self._avoid_until_s = 0.0

    def proxied(self, request: httpx.Request) -> httpx.Request | None:
        """The request for the proxy, None while that is being avoided."""
        route = self._route()
        if route.endpoint and time.monotonic() < self._avoid_until_s:
            return None
        return _at(request, route.proxy)

    def direct(self, request: httpx.Request, error: Exception | None) -> httpx.Request:
        """The request for the endpoint.

        Raises:
            Exception: the error itself, where there is no endpoint to go to.
        """
        route = self._route()
        if not route.endpoint and error is not None:
            raise error
        if error is not None:
            log.warning("the proxy is gone (%s): going straight to the endpoint", error)
            self._avoid_until_s = time.monotonic() + _AVOID_S
        return _at(request, route.endpoint)


def _at(request: httpx.Request, base: str) -> httpx.Request:
    """The same request under another base URL: what follows `/v1` is kept."""
    _, found, rest = request.url.raw_path.partition(b"/v1")
    url = httpx.URL(base)
    tail = rest if found else b""
    url = url.copy_with(raw_path=url.raw_path.rstrip(b"/") + tail)
    headers = [(b"host", url.netloc), *((k, v) for k, v in request.headers.raw if k.lower() != b"host")]
    return httpx.Request(request.method, url, headers=headers, stream=request.stream, extensions=request.extensions)


class ProxyTransport(httpx.BaseTransport):
    """For `httpx.Client`. `inner` does the sending (default: an `httpx.HTTPTransport`)."""

    def __init__(self, route: Callable[[], Route], inner: httpx.BaseTransport | None = None) -> None:
        self._chooser = _Chooser(route)
        self._inner = inner or httpx.HTTPTransport(trust_env=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        error: Exception | None = None
        proxied = self._chooser.proxied(request)
        if proxied is not None:
            try:
                return self._inner.handle_request(proxied)
            except _GONE as gone:
                error = gone
        return self._inner.handle_request(self._chooser.direct(request, error))

    def close(self) -> None:
        self._inner.close()


class AsyncProxyTransport(httpx.AsyncBaseTransport):
    """For `httpx.AsyncClient`."""

    def __init__(self, route: Callable[[], Route], inner: httpx.AsyncBaseTransport | None = None) -> None:
        self._chooser = _Chooser(route)
        self._inner: Any = inner or httpx.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        error: Exception | None = None
        proxied = self._chooser.proxied(request)
        if proxied is not None:
            try:
                response: httpx.Response = await self._inner.handle_async_request(proxied)
                return response
            except _GONE as gone:
                error = gone
        response = await self._inner.handle_async_request(self._chooser.direct(request, error))
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()
