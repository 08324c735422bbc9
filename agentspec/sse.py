"""Server-sent events without I/O: bytes in, events out (WHATWG HTML, section 9.2).

Lines end at LF, CRLF or CR and nowhere else: U+2028 inside a JSON string is data. Chunks may be cut anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"
_DATA = b"data: "
_END = b"\n\n"


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event: its type ("message" unless named) and its data lines joined by LF."""

    event: str
    data: str


class SseDecoder:
    """Decodes a stream of server-sent events incrementally.

    >>> decoder = SseDecoder()
    >>> decoder.feed(b"data: a\\r")
    []
    >>> decoder.feed(b"\\n\\ndata: b")
    [ServerSentEvent(event='message', data='a')]
    """

    def __init__(self) -> None:
        self._pending = bytearray()
        self._data: list[bytes] = []
        self._event = b""
        self._first = True
        self._after_cr = False

    @property
    def held_bytes(self) -> int:
        """Bytes of a line and an event that are not complete yet."""
        return len(self._pending) + sum(map(len, self._data))

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Take the next bytes and return the events that they completed."""
        if (plain := self.plain_data(chunk)) is not None:
            return [ServerSentEvent("message", data.decode("utf-8", "replace")) for data in plain]
        events: list[ServerSentEvent] = []
        for line in self._lines(chunk):
            if line:
                self._field(line)
            elif (event := self._dispatch()) is not None:
                events.append(event)
        return events

    def plain_data(self, chunk: bytes) -> list[bytes] | None:
        """The data of each event, where these bytes are whole events of one line, as most endpoints send them.

        None: they are not, and `feed` has to look closer.
        """
        if self._pending or self._data or self._event or not chunk.startswith(_DATA) or not chunk.endswith(_END):
            return None
        plain = chunk[len(_DATA) : -len(_END)].split(_END + _DATA)
        if chunk.count(b"\n") != len(_END) * len(plain) or b"\r" in chunk:
            return None
        self._first = self._after_cr = False
        return plain

    def _lines(self, chunk: bytes) -> list[bytes]:
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # the LF of a CRLF that was cut in two
            self._after_cr = False
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        self._pending += chunk
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        *lines, rest = bytes(self._pending).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._pending = bytearray(rest)
        if self._first and lines:
            self._first = False
            lines[0] = lines[0].removeprefix(_BOM)
        return lines

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value

    def _dispatch(self) -> ServerSentEvent | None:
        data, event = self._data, self._event
        self._data, self._event = [], b""
        if not data:
            return None
        kind = event.decode("utf-8", "replace") or "message"
        return ServerSentEvent(kind, b"\n".join(data).decode("utf-8", "replace"))
