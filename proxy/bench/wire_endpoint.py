"""An endpoint that costs next to nothing: canned chat completions over HTTP/1.1, keep-alive, no model.

Whole answers are about 1 KB. A streamed answer begins at once and then sends a chunk at each beat of its pace; every
chunk holds the time at which it was sent, so that whoever reads it knows how long it was under way (`STAMP`; the clock
is CLOCK_MONOTONIC, which the processes of a machine share).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import re
import socket
import time
from dataclasses import dataclass
from typing import Any, cast

import httptools

STAMP = re.compile(rb"@(\d{20})")
"""A chunk's time of sending in nanoseconds of the monotonic clock."""
ANSWER_TEXT = "The order has left the warehouse and arrives on Thursday; nothing else is open. " * 9
MODEL = "bench"
_LAST_CHUNK = b"0\r\n\r\n"
_STREAMED_REQUEST = (b'"stream":true', b'"stream": true')


@dataclass(frozen=True, slots=True)
class Beat:
    """How streamed answers are paced: `chunks` of them, one each `interval_s`."""

    chunks: int = 20
    interval_s: float = 0.02


def _whole(status: str, payload: dict[str, Any]) -> bytes:
    body = json.dumps(payload, separators=(",", ":")).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _event(choice: dict[str, Any], **more: Any) -> str:
    payload = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1_750_000_000, "model": MODEL}
    return f"data: {json.dumps({**payload, 'choices': [choice], **more}, separators=(',', ':'))}\n\n"


def _http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_USAGE = {"prompt_tokens": 250, "completion_tokens": 150, "total_tokens": 400}
_CHOICE = {"index": 0, "message": {"role": "assistant", "content": ANSWER_TEXT}, "finish_reason": "stop"}
_COMPLETION = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 1_750_000_000, "model": MODEL}
ANSWER = _whole("200 OK", {**_COMPLETION, "choices": [_CHOICE], "usage": _USAGE})
MODELS = _whole("200 OK", {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": MODEL}]})
NOT_FOUND = _whole("404 Not Found", {"error": {"message": "not here", "type": "invalid_request_error"}})
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_PLACE = "@" + "0" * 20
_DELTA = {"role": "assistant", "content": f"{_PLACE} tokens"}
_BEFORE, _, _AFTER = (_http_chunk(_event({"index": 0, "delta": _DELTA, "finish_reason": None}).encode())).partition(
    _PLACE.encode()
)
_FINISH = _event({"index": 0, "delta": {}, "finish_reason": "stop"}, usage=_USAGE) + "data: [DONE]\n\n"
_END = _http_chunk(_FINISH.encode()) + _LAST_CHUNK


def stamped_chunk() -> bytes:
    """A chunk of a streamed answer that says when it was made."""
    return b"%b@%020d%b" % (_BEFORE, time.monotonic_ns(), _AFTER)


class Endpoint(asyncio.Protocol):
    """One connection. Requests come one after the other, as of any client that keeps connections."""

    def __init__(self, beat: Beat) -> None:
        self._beat = beat
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._url = b""
        self._body: list[bytes] = []
        self._began_s = 0.0
        self._sent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by class

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self._transport is not None:
                self._transport.abort()

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        if self._url != b"/v1/chat/completions":
            self._write(MODELS if self._url == b"/v1/models" else NOT_FOUND)
        elif any(mark in body for mark in _STREAMED_REQUEST):
            self._began_s, self._sent = self._loop.time(), 0
            self._stream()
        else:
            self._write(ANSWER)

    def _stream(self) -> None:
        if self._sent >= self._beat.chunks:
            self._timer = None
            self._write(_END)
            return
        self._write(stamped_chunk() if self._sent else _STREAM_HEAD + stamped_chunk())
        self._sent += 1
        self._timer = self._loop.call_at(self._began_s + self._sent * self._beat.interval_s, self._stream)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


async def serve(listener: socket.socket, beat: Beat) -> None:
    """Answer on this socket until cancelled."""
    server = await asyncio.get_running_loop().create_server(lambda: Endpoint(beat), sock=listener)
    async with server:
        await server.serve_forever()


def main() -> None:
    """`python -m agentspec.proxy.bench.wire_endpoint`: says its port on one line, then serves until it is ended."""
    import uvloop

    usual, options = Beat(), argparse.ArgumentParser()
    options.add_argument("--chunks", type=int, default=usual.chunks)
    options.add_argument("--interval-ms", type=float, default=usual.interval_s * 1000)
    given = options.parse_args()
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(listener.getsockname()[1], flush=True)
    gc.disable()  # a pause here would be measured as somebody else's
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(listener, Beat(given.chunks, given.interval_ms / 1000)))


if __name__ == "__main__":
    main()
