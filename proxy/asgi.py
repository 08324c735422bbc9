"""Small pieces of raw ASGI: reading a request, answering with JSON, headers that do not travel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Protocol

import msgspec

from agentspec.errors import ApiError, RequestError
from agentspec.protocols import Headers
from agentspec.wire.apis import WireApi

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers of one connection, not of the message (RFC 9110, section 7.6.1)."""

OURS = b"x-agentspec-"
"""Headers with this prefix are for us and go no further."""


class Hangup:
    """A client's connection, as far as its loss is concerned: whoever serves a request on it is told."""

    __slots__ = ("_lost", "_tell")

    def __init__(self) -> None:
        self._lost = False
        self._tell: Callable[[], None] | None = None

    def tell(self, listener: Callable[[], None] | None) -> None:
        """Whom to tell from now on."""
        self._tell = listener
        if self._lost and listener is not None:
            asyncio.get_running_loop().call_soon(listener)

    def lost(self) -> None:
        """The connection is lost."""
        self._lost = True
        if self._tell is not None:
            self._tell()


HANGUP = "agentspec.hangup"
"""The extension of a scope under which our own server offers its `Hangup`."""


class ChunkWriter(Protocol):
    """Writes pieces of an answer that goes out in chunks without waiting: what `send` does with them, in one step."""

    @property
    def chunked(self) -> bool:
        """Whether an answer goes out, in chunks."""
        ...

    def write(self, chunk: bytes) -> bool:
        """Write the next piece; false where the client should read some of what it has before the next."""
        ...


CHUNK_WRITER = "agentspec.chunk_writer"
"""The extension of a scope under which our own server offers a `ChunkWriter` for this request."""


class ClientGone(Exception):
    """The client left while its request was still being read."""


class Sending:
    """`send`, for which a connection that the server has closed is a client that left."""

    __slots__ = ("_send",)

    def __init__(self, send: Send) -> None:
        self._send = send

    async def __call__(self, message: Message) -> None:
        try:
            await self._send(message)
        except (RuntimeError, OSError) as error:
            raise ClientGone from error


async def read_body(receive: Receive, limit_bytes: int) -> bytes:
    """The whole request body.

    Raises:
        RequestError: it is larger than the limit.
        ClientGone: the client left.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit_bytes:
            raise RequestError(
                f"the request body is larger than {limit_bytes} bytes (setting max_body_bytes)",
                code="request_too_large",
                status=413,
            )
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers that travel on, in order; those that `Connection` names stay behind as well. Names in lower case."""
    kept = [pair for pair in headers if pair[0] not in HOP_BY_HOP]
    if len(kept) < len(headers) and (named := _named_by_connection(headers)):
        kept = [pair for pair in kept if pair[0] not in named]
    return kept


def _named_by_connection(headers: Headers) -> set[bytes]:
    values = (value for name, value in headers if name == b"connection")
    return {token.strip().lower() for value in values for token in value.split(b",")}


def header(headers: Headers, name: bytes) -> str | None:
    """The first value of a header, None where it is not sent. Names in lower case."""
    for key, value in headers:
        if key == name:
            return value.decode("latin-1")
    return None


Head = Mapping[bytes, bytes]
"""The first value of each header of a request, for those who look for several."""


def head_of(headers: Headers) -> Head:
    """These headers by their names."""
    return dict(reversed(headers))


def told(head: Head, name: bytes) -> str | None:
    """What a header says, None where it is not sent."""
    value = head.get(name)
    return None if value is None else value.decode("latin-1")


async def send_json(send: Send, status: int, body: Any, headers: Headers = ()) -> None:
    """Answer with a JSON body."""
    raw = msgspec.json.encode(body)
    fields = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": raw})


async def send_error(send: Send, error: ApiError, api: WireApi) -> None:
    """Answer with one of our own errors, in the API's shape."""
    await send_json(send, error.status, api.error_body(error))
