"""uvicorn's HTTP protocol, mended: heads without an end, offers of HTTP/2 that cost the body, trailers, pipelines."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from agentspec.proxy.asgi import CHUNK_WRITER, HANGUP, Hangup
from agentspec.proxy.doors import head_too_large

_END_OF_HEAD = b"\r\n\r\n"
_OFFER_OF_HTTP2 = re.compile(rb"\r\nupgrade: *h2c(?=\r\n)", re.IGNORECASE)
"""Java's client sends it with every request; the parser would take what follows for another protocol."""


class GuardedHttp(HttpToolsProtocol):
    """One client's connection."""

    max_header_bytes = 2**16

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_bytes = 0
        self._hangup = Hangup()
        self._served: tuple[RequestResponseCycle, ...] = ()

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            if self.transport.is_closing():
                return
            self._head_bytes += len(data)
            if b"h2c" in data:
                head, end, body = data.partition(_END_OF_HEAD)
                data = _OFFER_OF_HTTP2.sub(b"", head + end) + body
        super().data_received(data)
        if self._in_head and self._head_bytes > self.max_header_bytes:
            self._refuse()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
        self.headers = list(self.headers)  # a body's trailers go here, not into the request's headers

    def connection_lost(self, exc: Exception | None) -> None:
        self._hangup.lost()
        waiting = [cycle for cycle, _ in self.pipeline]  # uvicorn itself marks the latest request alone
        for cycle in (*self._served, *waiting):
            cycle.disconnected = True
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        extensions: dict[str, Any] = {HANGUP: self._hangup, CHUNK_WRITER: _Chunks(cycle)}
        cycle.scope["extensions"] = extensions
        self._served = (cycle,)
        super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head, self._head_bytes = True, 0

    def _refuse(self) -> None:
        body = msgspec.json.encode(head_too_large(self.max_header_bytes).body())
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)
        )
        self.transport.close()


class _Chunks:
    """Writes as uvicorn's `send` does. Implements `ChunkWriter`."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    @property
    def chunked(self) -> bool:
        cycle = self._cycle
        goes_out = cycle.response_started and not (cycle.response_complete or cycle.disconnected)
        return goes_out and bool(cycle.chunked_encoding) and cycle.scope["method"] != "HEAD"

    def write(self, chunk: bytes) -> bool:
        cycle = self._cycle
        if cycle.disconnected:
            return False
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        return not cycle.flow.write_paused


def guarded_http(max_header_bytes: int) -> type[GuardedHttp]:
    """The protocol with this limit."""
    return type("GuardedHttp", (GuardedHttp,), {"max_header_bytes": max_header_bytes})
