"""Arbitrary HTTP at the running proxy's doors, whole and in halves.

    python -m tests.fuzz.fuzz_doors --seconds 60

Every request must be answered or its connection closed in time, by no 500 of ours, without a traceback in the log; and
afterwards the proxy must serve as if nothing had been.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field

from agentspec.config import load
from tests.fuzz.requests import a_request, a_tame_request
from tests.proxy.conftest import Proxy
from tests.wire.dialects import ALL

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
    no_body = raw.startswith(b"HEAD") or b"content-length: 0\r\n" in head or b" 204 " in head
    return head + (b"" if no_body or chance.random() < 0.5 else await reader.read(2**16))


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
    """Each API, on fresh connections; and no part of speculation has failed in the meantime."""
    for dialect in ALL.values():
        body = dialect.request("after the storm")
        head = f"POST {dialect.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + body)
        async with asyncio.timeout(PATIENCE_S):
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n"), f"{dialect.path} is served no more"
        writer.transport.abort()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /agentspec/status HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        await reader.readuntil(b"\r\n\r\n")
        assert b'"faults":{}' in (status := await reader.read(2**16)), status
    writer.transport.abort()


async def fuzz(seed: int, seconds: float, limit: int = 10**9) -> Found:
    """Start an endpoint and a proxy, and try their doors."""
    found, log = Found(), Log()
    logging.getLogger().addHandler(log)
    endpoint = await asyncio.start_server(serve_endpoint, "127.0.0.1", 0, limit=2**18)
    url = f"http://127.0.0.1:{endpoint.sockets[0].getsockname()[1]}/v1"
    with tempfile.TemporaryDirectory() as folder:
        kept = {"database": f"sqlite:///{folder}/ledger.sqlite3", "memory_database": ""}
        proxy = Proxy(load({"upstream": url, **kept}))
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
