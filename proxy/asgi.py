"""Small pieces of raw ASGI: reading a request, answering with JSON, headers that do not travel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from agentspec.errors import ApiError, RequestError
from agentspec.protocols import Headers

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


class ClientGone(Exception):
    """The client left while its request was still being read."""


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
    """The headers that travel on, in order; those that `Connection` names stay behind as well."""
    named = {
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    }
    drop = HOP_BY_HOP | named
    return [(name, value) for name, value in headers if name.lower() not in drop]


def header(headers: Headers, name: bytes) -> str | None:
    """The first value of a header, None where it is not sent."""
    for key, value in headers:
        if key.lower() == name:
            return value.decode("latin-1")
    return None


_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


def foreign_host(headers: Headers) -> str | None:
    """The `Host` that a request names, if it is not this machine: a page that borrowed a name (DNS rebinding)."""
    host = header(headers, b"host") or ""
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    return None if name in _LOOPBACK_NAMES else host


async def send_json(send: Send, status: int, body: Any, headers: Headers = ()) -> None:
    """Answer with a JSON body."""
    raw = msgspec.json.encode(body)
    fields = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": raw})


async def send_error(send: Send, error: ApiError) -> None:
    """Answer with one of our own errors, in the API's shape."""
    await send_json(send, error.status, error.body())
