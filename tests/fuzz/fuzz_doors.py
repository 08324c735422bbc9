"""Arbitrary HTTP at the running proxy's doors, whole and in halves.

    python -m tests.fuzz.fuzz_doors --seconds 60

Every request must be answered or its connection closed in time, by no 500 of ours, without a traceback in the log; and
afterwards the proxy must serve as if nothing had been.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field

from agentspec.config import load
from tests.proxy.conftest import Proxy
from tests.wire.dialects import ALL
from tests.wire.mutations import altered, damaged

PATIENCE_S = 10.0
ANSWER = b"HTTP/1.1 200 OK\r\nx-endpoint: 1\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
STREAM = (
    b"HTTP/1.1 200 OK\r\nx-endpoint: 1\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    b'11\r\ndata: {"id": 1}\n\n\r\n0\r\n\r\n'
)


async def serve_endpoint(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An endpoint that answers whatever it is asked."""
    with contextlib.suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
            body = await reader.readexactly(lengths[0] if lengths else 0)
            answer = STREAM if b"stream" in body else ANSWER
            writer.write(answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if head.startswith(b"head ") else answer)
            await writer.drain()
    writer.close()


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


@dataclass(slots=True)
class Found:
    """What came of it."""

    cases: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


class Log(logging.Handler):
    """Collects tracebacks."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.faults.append(f"{record.name}: {self.format(record)[-600:]}")


async def try_case(port: int, seed: int, found: Found) -> None:
    """One connection: a tame request that must be answered, or one to three wild ones that must come to an end."""
    chance = random.Random(seed)
    tame = chance.random() < 0.5
    raw = a_tame_request(chance) if tame else b"".join(a_request(chance) for _ in range(chance.choice((1, 1, 2, 3))))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    try:
        async with asyncio.timeout(PATIENCE_S):
            got = await (ask(reader, writer, raw, chance) if tame else converse(reader, writer, raw, chance))
    except TimeoutError:
        found.faults.append(f"seed {seed}: neither answered nor closed within {PATIENCE_S:g} s: {raw[:500]!r}")
        return
    except (asyncio.IncompleteReadError, OSError) as error:
        if tame:
            found.faults.append(f"seed {seed}: no answer but {error!r} to {raw[:500]!r}")
        return
    finally:
        writer.transport.abort()
    found.cases += 1
    for part in got.split(b"HTTP/1.1 ")[1:]:
        status = part[:3].decode("latin-1")
        found.statuses[status] += 1
        if status.startswith("5"):
            found.faults.append(f"seed {seed}: {part[:300]!r} for {raw[:500]!r}")


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, raw: bytes, chance: random.Random) -> bytes:
    """Send in two pieces and wait for the answer's head; leave before its body, or after some of it."""
    cut = chance.randrange(len(raw) + 1)
    for piece in (raw[:cut], raw[cut:]):
        writer.write(piece)
        await asyncio.sleep(0)
    head = await reader.readuntil(b"\r\n\r\n")
    return head + (await reader.read(2**16) if chance.random() < 0.5 and not head.endswith(b": 0\r\n\r\n") else b"")


async def converse(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, raw: bytes, chance: random.Random
) -> bytes:
    """Send in two pieces, stop sending at once or a little later, read what comes until the other side closes."""
    cut = chance.randrange(len(raw) + 1)
    for piece in (raw[:cut], raw[cut:]):
        writer.write(piece)
        await asyncio.sleep(0)
    if chance.random() < 0.1:
        return b""  # gone without a word
    got = b""
    if chance.random() < 0.5:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                got = await reader.read(2**20)
    writer.write_eof()
    return got + await reader.read()


async def storm(port: int, first_seed: int, seconds: float, limit: int, found: Found) -> None:
    """Cases side by side, until the time or the number is up."""
    until = time.monotonic() + seconds
    seeds = iter(range(first_seed, first_seed + limit))

    async def work() -> None:
        for seed in seeds:
            if time.monotonic() > until or len(found.faults) > 100:
                return
            with contextlib.suppress(TimeoutError, OSError):
                await try_case(port, seed, found)

    await asyncio.gather(*(work() for _ in range(8)))


async def still_serves(port: int) -> None:
    """Each API, and the proxy itself, on fresh connections."""
    for dialect in ALL.values():
        body = dialect.request("after the storm")
        head = f"POST {dialect.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + body)
        async with asyncio.timeout(PATIENCE_S):
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n"), f"{dialect.path} is served no more"
        writer.transport.abort()


async def fuzz(seed: int, seconds: float, limit: int = 10**9) -> Found:
    """Start an endpoint and a proxy, and try their doors."""
    found, log = Found(), Log()
    logging.getLogger().addHandler(log)
    endpoint = await asyncio.start_server(serve_endpoint, "127.0.0.1", 0, limit=2**18)
    url = f"http://127.0.0.1:{endpoint.sockets[0].getsockname()[1]}/v1"
    with tempfile.TemporaryDirectory() as folder:
        proxy = Proxy(load({"upstream": url, "database": f"sqlite:///{folder}/ledger.sqlite3"}))
        try:
            await storm(proxy.port, seed, seconds, limit, found)
            await still_serves(proxy.port)
        finally:
            await asyncio.to_thread(proxy.stop)
            endpoint.close()
            logging.getLogger().removeHandler(log)
    found.faults += log.faults
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()) * 1000)
    options = parser.parse_args()
    found = asyncio.run(fuzz(options.seed, options.seconds))
    print(f"{found.cases} cases from seed {options.seed} on: {dict(sorted(found.statuses.items()))}")
    for fault in found.faults[:20]:
        print("FAULT", fault)
    raise SystemExit(bool(found.faults))


if __name__ == "__main__":
    main()
