"""The way to a proxy nearby for clients that block: plain HTTP by urllib3.

It takes less time for each streamed piece than httpx's own transport, whose parser (h11) is written in Python: much of
what the way through the proxy costs on the same machine is saved again.
"""

from __future__ import annotations

import http.client
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError
from urllib3.util import SKIP_HEADER

log = logging.getLogger("agentspec.transport")

_KEPT = 1_000
"""Idle connections that are kept at most."""
_READ_BYTES = 2**16
_LAST_EVENT = b"data: [DONE]\n\n"
_ADDED = ("accept-encoding", "user-agent")
"""Headers that urllib3 would add where the request has none."""


class NearTransport:
    """Sends requests of an HTTP library (httpx or httpx2) and gives that library's responses."""

    def __init__(self, library: ModuleType) -> None:
        self._http = library
        self._pools = urllib3.PoolManager(maxsize=_KEPT, retries=False)
        self._loose_ends: deque[_LooseEnd] = deque(maxlen=_KEPT)

    def handle_request(self, request: Any) -> Any:
        """Send a request; returns once status and headers are there.

        Raises:
            TransportError: of the library, as its own transport would.
        """
        self._tie_up()
        url, allowed = request.url, request.extensions.get("timeout", {})
        pool = self._pools.connection_from_host(url.host, url.port or 80, "http")
        headers = _headers(request)
        sized = "content-length" in headers or "transfer-encoding" in headers
        try:
            raw = pool.urlopen(
                request.method,
                url.raw_path.decode("ascii"),
                body=request.stream if sized else None,
                headers=headers,
                redirect=False,
                timeout=urllib3.Timeout(connect=allowed.get("connect"), read=allowed.get("read")),
                preload_content=False,
                decode_content=False,
            )
        except (HTTPError, OSError) as error:
            raise _told(error, request, self._http) from error
        return self._http.Response(
            raw.status,
            headers=[(name.encode("ascii"), value.encode("latin-1")) for name, value in raw.headers.items()],
            stream=_body_class(self._http)(raw, request, self._loose_ends),
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": (raw.reason or "").encode("latin-1")},
        )

    def _tie_up(self) -> None:
        """Read the ends of answers that nobody read to their end: their connections can be used again."""
        for _ in range(len(self._loose_ends)):
            try:
                self._loose_ends.popleft().tie_up()
            except IndexError:  # another thread has
                return

    def close(self) -> None:
        """Close the connections."""
        while self._loose_ends:
            self._loose_ends.popleft().raw.close()
        self._pools.clear()


@dataclass(frozen=True, slots=True)
class _LooseEnd:
    """A streamed answer of which all has been read but its very end. SDKs stop at `[DONE]`, a few bytes before."""

    raw: Any
    rest: Iterator[bytes]

    def tie_up(self) -> None:
        """Read the end if it is there, and wait for nothing."""
        try:
            self.raw.connection.sock.settimeout(0.0)
            next(self.rest)
        except StopIteration:
            return  # urllib3 has taken the connection back
        except Exception as error:
            log.debug("an answer did not end after its last event: %r", error)
        self.raw.close()


def _headers(request: Any) -> urllib3.HTTPHeaderDict:
    headers = urllib3.HTTPHeaderDict()
    for name, value in request.headers.raw:
        headers.add(name.decode("ascii"), value.decode("latin-1"))
    for name in _ADDED:
        if name not in headers:
            headers.add(name, SKIP_HEADER)
    return headers


@cache
def _body_class(library: ModuleType) -> Any:
    """The body of a response as it arrives, as a stream of this library."""

    class Body(library.SyncByteStream):  # type: ignore[misc, name-defined]
        def __init__(self, raw: urllib3.BaseHTTPResponse, request: Any, loose_ends: deque[_LooseEnd]) -> None:
            self._raw = raw
            self._request = request
            self._loose_ends = loose_ends
            self._pieces = _pieces(raw)
            self._latest = b""

        def __iter__(self) -> Iterator[bytes]:
            try:
                for piece in self._pieces:
                    self._latest = piece
                    yield piece
                self._latest = b""
            except (HTTPError, OSError, http.client.HTTPException) as error:
                raise _told(error, self._request, library) from error

        def close(self) -> None:
            if self._latest.endswith(_LAST_EVENT) and self._raw.connection is not None:
                self._loose_ends.append(_LooseEnd(self._raw, self._pieces))
            else:
                self._raw.close()  # what has been read to its end has given its connection back already

    return Body


def _pieces(raw: Any) -> Iterator[bytes]:
    if raw.chunked:
        yield from raw.read_chunked(decode_content=False)
        return
    while piece := raw.read1(_READ_BYTES, decode_content=False):
        yield piece


def _told(error: BaseException, request: Any, library: ModuleType) -> Exception:
    """The library's exception for what went wrong."""
    cause = error.args[-1] if error.args and isinstance(error.args[-1], BaseException) else error
    if isinstance(error, NewConnectionError):  # a timeout as well, says urllib3
        kind = library.ConnectError
    elif isinstance(error, ConnectTimeoutError):
        kind = library.ConnectTimeout
    elif isinstance(error, ReadTimeoutError):
        kind = library.ReadTimeout
    elif isinstance(cause, http.client.HTTPException) or not isinstance(cause, OSError):
        kind = library.RemoteProtocolError  # "closed without an answer" is both
    else:
        kind = library.WriteError if isinstance(cause, BrokenPipeError) else library.ReadError
    told: Exception = kind(str(error), request=request)
    return told
