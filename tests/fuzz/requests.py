"""HTTP requests from a seeded generator: tame ones, whatever they say, and wild ones."""

from __future__ import annotations

import json
import random

from tests.wire.dialects import ALL
from tests.wire.mutations import altered, damaged

UPGRADE = (
    "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    "sec-websocket-key: MTIzNDU2Nzg5MDEyMzQ1Ng=="
)
METHODS = (
    "GET",
    "POST",
    "POST",
    "POST",
    "HEAD",
    "PUT",
    "DELETE",
    "OPTIONS",
    "PATCH",
    "TRACE",
    "CONNECT",
    "get",
    "X-ODD",
)
PATHS = (
    *(dialect.path for dialect in ALL.values()),
    *(
        "/",
        "/v1",
        "/v1/",
        "/v1/models",
        "/v1/x?y=%",
        "/healthz",
        "/agentspec/status",
        "/agentspec/channel",
        "/dashboard",
    ),
    *("/r/x/v1/messages", "/r//v1/responses", "/r/", "/v1/../healthz", "//v1/messages", "/v1/%2e%2e/x", "/v1/\xff"),
    *("*", "http://127.0.0.1/v1/models", "/v1/" + "a" * 3000, "/v1/messages?" + "b=1&" * 300, "/v1/x#y", "/v1/%zz%00"),
)
HEADERS = (
    *(
        "content-type: application/json",
        "accept: */*",
        "authorization: Bearer k",
        "x-api-key: k",
        "expect: 100-continue",
    ),
    *(
        "connection: close",
        "connection: keep-alive, x-odd",
        "x-odd: 1",
        "te: trailers",
        "upgrade: h2c",
        "range: bytes=0-",
    ),
    *("accept-encoding: gzip", "content-encoding: gzip", "content-encoding: odd", "anthropic-beta: a,b", "cookie: a=b"),
    *(
        "x-agentspec-session: s",
        "x-agentspec-runtime: \xff",
        "x-agentspec-scope: " + "s" * 500,
        "x-stainless-retry-count: x",
    ),
    *(
        "origin: http://evil.example",
        "x-empty:",
        "x-long: " + "y" * 9000,
        "x-latin: K\xf6ln",
        "if-none-match: *",
        "trailer: x",
    ),
    *(UPGRADE,),
    *(
        "transfer-encoding: gzip, chunked",
        "x folded: 1",
        "host: evil.example",
        "content-length: 5",
        "bad header",
        ": none",
    ),
)


TAME_METHODS = ("GET", "POST", "POST", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH")
TAME_PATHS = tuple(path for path in PATHS if path.startswith("/") and "#" not in path and path.isascii())
TAME_HEADERS = tuple(
    line
    for line in HEADERS
    if not line.startswith(("transfer-", "content-length", "bad", ":", "x folded", "host", "expect", "connection: up"))
)


def a_tame_request(chance: random.Random) -> bytes:
    """A request without a fault of form: whatever it says, it has a right to an answer."""
    lines = [f"{chance.choice(TAME_METHODS)} {chance.choice(TAME_PATHS)} HTTP/1.1", "host: 127.0.0.1"]
    lines += chance.sample(TAME_HEADERS, chance.choice((0, 0, 1, 2, 4)))
    body = a_body(chance)
    if chance.random() < 0.6:
        lines.append(f"content-length: {len(body)}")
    else:
        lines.append("transfer-encoding: chunked")
        size = chance.choice((1, 7, 100, 4096))
        parts = [body[at : at + size] for at in range(0, len(body), size)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def a_request(chance: random.Random) -> bytes:
    """One request as a client may send it, or as none should."""
    lines = [f"{chance.choice(METHODS)} {chance.choice(PATHS)} HTTP/1.{chance.choice('11110')}", "host: 127.0.0.1"]
    lines += chance.sample(HEADERS, chance.choice((0, 0, 1, 1, 2, 4)))
    body = a_body(chance)
    framing = chance.random()
    if framing < 0.5:
        lines.append(f"content-length: {len(body)}")
    elif framing < 0.8:
        lines.append("transfer-encoding: chunked")
        body = in_chunks(body, chance)
    elif framing < 0.9:
        lines.append(f"content-length: {chance.choice(('-1', '0', '3', 'x', '', '99999999999999999999', '1, 1'))}")
    raw = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
    if chance.random() < 0.2:
        raw = damaged(raw, chance)
    if chance.random() < 0.15:
        raw = raw[: chance.randrange(len(raw))]
    return raw


def a_body(chance: random.Random) -> bytes:
    if chance.random() < 0.2:
        return chance.choice((b"", b"{", b"[]", b"\x1f\x8b\x08", chance.randbytes(chance.randrange(300))))
    dialect = chance.choice(list(ALL.values()))
    body = dialect.request("hello", stream=chance.random() < 0.5, tools=[])
    if chance.random() < 0.5:
        body = json.dumps(altered(json.loads(body), chance)).encode()
    return damaged(body, chance) if chance.random() < 0.2 else body


def in_chunks(body: bytes, chance: random.Random) -> bytes:
    size = chance.choice((1, 7, 100, 4096))
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    raw = b"".join(b"%x%s\r\n%s\r\n" % (len(p), chance.choice((b"", b";a=b", b"")), p) for p in parts)
    return raw + chance.choice((b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nx-trailer: 1\r\n\r\n", b"zz\r\n", b"-1\r\n", b""))
