"""The relayed bytes of an answer, streamed or whole, packed or not, as turn events."""

from __future__ import annotations

import re
import zlib

from agentspec.events import TurnEvent, text_joined
from agentspec.protocols import Headers
from agentspec.proxy.asgi import header
from agentspec.wire.apis import WireApi

_MAX_HELD_BYTES = 64 * 2**20
"""Most that is kept of an answer that cannot be read piece by piece."""

_MAX_INFLATION = 100
"""How many times its size a compressed answer may have; more is made to fill memories, not to be read."""

_BEGINS_OR_CLOSES = re.compile(rb'"name"|\}(?:\\[nrt]| )*"')
"""A call's name, or a piece of its arguments that ends with a brace; between the two most pieces are of no account."""


class AnswerDecoder:
    """Turns the relayed bytes of an answer, streamed or whole, gzip or not, into turn events."""

    def __init__(self, headers: Headers, api: WireApi) -> None:
        kind = (header(headers, b"content-type") or "").lower()
        encoding = (header(headers, b"content-encoding") or "identity").lower()
        self.readable = encoding in ("identity", "gzip", "deflate")
        self._inflate = zlib.decompressobj(47) if encoding in ("gzip", "deflate") else None  # 47: either header
        self._api = api
        self._stream = api.open_stream() if "text/event-stream" in kind else None
        self._whole = bytearray()

    def may_show_call(self, chunk: bytes) -> bool:
        """Whether a call may begin or close with these bytes: no certain sign, cheap to look for."""
        if self._inflate is not None:
            return True
        return self._api.call_sign.search(chunk) is not None and _BEGINS_OR_CLOSES.search(chunk) is not None

    def feed(self, chunk: bytes) -> list[TurnEvent]:
        """The events that these bytes completed, text in a row as one.

        Raises:
            ValueError: too much would have to be kept to read this answer.
        """
        if not self.readable:
            return []
        data = self._decompress(chunk)
        events: list[TurnEvent] = []
        if self._stream is not None:
            events = self._stream.feed(data)
        else:
            self._whole += data
        if (len(self._whole) if self._stream is None else self._stream.held_bytes) > _MAX_HELD_BYTES:
            raise ValueError(f"more than {_MAX_HELD_BYTES} bytes without an event")
        return text_joined(events)

    def _decompress(self, chunk: bytes) -> bytes:
        if self._inflate is None:
            return chunk
        limit_bytes = 2**20 + _MAX_INFLATION * len(chunk)
        data = self._inflate.decompress(chunk, limit_bytes)
        while self._inflate.eof and (rest := self._inflate.unused_data):  # some gateways write a member for each event
            self._inflate = zlib.decompressobj(47)
            data += self._inflate.decompress(rest, limit_bytes)
        if self._inflate.unconsumed_tail or len(data) > limit_bytes:
            raise ValueError(f"{len(chunk)} bytes that inflate to more than {limit_bytes}")
        return data

    def finish(self) -> list[TurnEvent]:
        """The answer is over."""
        return self._stream.finish() if self._stream is not None else self._api.read_answer(bytes(self._whole))
