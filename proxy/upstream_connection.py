"""A connection to an endpoint: one request after the other, each answer's bytes as they come.

httptools parses. What is here is on every token's way and small: names and values stay the bytes that they were, and
what comes in one piece goes on in one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import cast

import httptools

from agentspec.protocols import Headers, UpstreamRequest
from agentspec.proxy.upstream_answer import Answer, BrokenOff, ClosedUnused

_MAX_HEAD_BYTES = 2**17


class Connection(asyncio.Protocol):
    """One connection. Implements `Tap` for the one answer at a time that comes over it.

    Args:
        free: told when it can take another request.
        lost: told when it is closed.
    """

    def __init__(self, free: Callable[[Connection], None], lost: Callable[[Connection], None]) -> None:
        self._free, self._lost = free, lost
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(  # what endpoints are forgiven everywhere else
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._paused = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._in_head = self._bodiless = self._began = False
        self._head_bytes = 0
        self.idle_since_s = math.inf

    def ask(self, head: bytes, request: UpstreamRequest, silence_limit_s: float) -> Answer:
        """Send a request: its head as it goes out, and its body."""
        answer = Answer(self, silence_limit_s)
        if self._transport is None:  # it was closed while it was handed over
            answer.on_fault(ClosedUnused("the connection was closed"))
            return answer
        self._answer = answer
        self._bodiless = request.method == "HEAD"
        self._began, self._head_bytes = False, 0
        self._transport.write(head + request.body)
        return answer

    @property
    def closing(self) -> bool:
        """Whether it can take no request any more."""
        return self._transport is None or self._transport.is_closing()

    def abort(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Read no more for now."""
        if not self._paused and not self.closing and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused and self._transport is not None:
            self._paused = False
            if not self.closing:
                self._transport.resume_reading()

    # What the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:  # nobody has asked
            self.abort()
            return
        self._began = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break_off(answer, f"what came is no HTTP answer ({error})")
        if not answer.status:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES:
                self._break_off(answer, f"the answer's head is larger than {_MAX_HEAD_BYTES} bytes")
        answer.came()

    def _break_off(self, answer: Answer, why: str) -> None:
        answer.on_fault(BrokenOff(why))
        self._answer = None
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost(self)
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if exc is None and answer.status and not _framed(answer.headers):
            answer.on_whole()  # such an answer ends with its connection
        else:
            kind = BrokenOff if self._began else ClosedUnused
            answer.on_fault(kind(str(exc or "the connection was closed")))
        answer.came()

    # What the parser tells

    def on_message_begin(self) -> None:
        self._headers, self._in_head = [], True
        if self._answer is None:  # nobody has asked for another
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it follows a body, and goes no further
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        status = self._parser.get_status_code()
        if self._answer is not None and status >= 200:  # before it come notices, if any
            self._answer.on_head(status, self._headers)
            if self._bodiless:
                self._end(self._answer, keep=False)

    def on_body(self, data: bytes) -> None:
        if self._answer is not None:
            self._answer.on_body(data)

    def on_message_complete(self) -> None:
        if self._answer is not None and self._answer.status:
            self._end(self._answer, keep=self._parser.should_keep_alive())

    def _end(self, answer: Answer, *, keep: bool) -> None:
        self._answer = None
        answer.on_whole()
        if keep and not self.closing:
            self.resume()
            self._free(self)
        else:
            self.abort()


def _framed(headers: Headers) -> bool:
    """Whether an answer says where it ends: one that does not cannot be told from one that was cut off by a close."""
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)
