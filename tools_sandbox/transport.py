"""Transports that go through the proxy while it is there and straight to the endpoint when it is not.

`SyncWay` and `AsyncWay` are of no HTTP library's; `transport_class` makes them httpx's or httpx2's.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from agentspec.tools_sandbox.near_transport import NearTransport

log = logging.getLogger("agentspec.transport")

_GONE = ("ConnectError", "ConnectTimeout", "RemoteProtocolError", "ReadError", "WriteError")
"""What a request ends in, before any answer, when the proxy is away or dies."""

_ROOT = re.compile(rb"/v1(?=[/?]|$)")
"""The API's root in a path; the id of a runtime before it may begin with the same letters."""

_AVOID_S = 2.0
"""After a failure, go straight to the endpoint for this long before trying the proxy again."""


@dataclass(frozen=True, slots=True)
class Route:
    """Two base URLs for the same requests, each with its `/v1`. An empty `endpoint` means there is no other way."""

    proxy: str
    endpoint: str


class _Chooser:
    """Rewrites a request for one of the two ways and remembers that the proxy was away."""

    def __init__(self, http: Any, route: Callable[[], Route]) -> None:
        self._http = http
        self._route = route
        self._avoid_until_s = 0.0
        self.gone: tuple[type[Exception], ...] = tuple(getattr(http, name) for name in _GONE)

    def proxied(self, request: Any) -> Any | None:
        """The request for the proxy, None while that is being avoided."""
        route = self._route()
        if route.endpoint and time.monotonic() < self._avoid_until_s:
            return None
        return self._at(request, route.proxy)

    def direct(self, request: Any, error: Exception | None) -> Any:
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
        return self._at(request, route.endpoint)

    def _at(self, request: Any, base: str) -> Any:
        """The same request under another base URL: what follows `/v1` is kept."""
        path: bytes = request.url.raw_path
        root = _ROOT.search(path)
        url = self._http.URL(base)
        url = url.copy_with(raw_path=url.raw_path.rstrip(b"/") + (path[root.end() :] if root else b""))
        headers = [(b"host", url.netloc), *((k, v) for k, v in request.headers.raw if k.lower() != b"host")]
        extensions = request.extensions
        return self._http.Request(request.method, url, headers=headers, stream=request.stream, extensions=extensions)


class SyncWay:
    """A transport for clients that block.

    Args:
        route: where to go.
        inner: does the sending. Default: the library's own transport, and `NearTransport` where the proxy speaks
            plain HTTP.
    """

    http: Any = httpx

    def __init__(self, route: Callable[[], Route], inner: Any = None) -> None:
        self._chooser = _Chooser(self.http, route)
        self._inner = inner or self.http.HTTPTransport(trust_env=False)
        self._near = inner or NearTransport(self.http)

    def handle_request(self, request: Any) -> Any:
        """Send a request one way or the other."""
        error: Exception | None = None
        proxied = self._chooser.proxied(request)
        if proxied is not None:
            way = self._near if proxied.url.scheme == "http" else self._inner
            try:
                return way.handle_request(proxied)
            except self._chooser.gone as gone:
                error = gone
        return self._inner.handle_request(self._chooser.direct(request, error))

    def close(self) -> None:
        """Close the connections."""
        self._near.close()
        self._inner.close()


class AsyncWay:
    """The same for clients that do not."""

    http: Any = httpx

    def __init__(self, route: Callable[[], Route], inner: Any = None) -> None:
        self._chooser = _Chooser(self.http, route)
        self._inner = inner or self.http.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request one way or the other."""
        error: Exception | None = None
        proxied = self._chooser.proxied(request)
        if proxied is not None:
            try:
                return await self._inner.handle_async_request(proxied)
            except self._chooser.gone as gone:
                error = gone
        return await self._inner.handle_async_request(self._chooser.direct(request, error))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class ProxyTransport(SyncWay, httpx.BaseTransport):
    """For `httpx.Client`."""


class AsyncProxyTransport(AsyncWay, httpx.AsyncBaseTransport):
    """For `httpx.AsyncClient`."""
