"""Connections, rows 2 to 5: many streams, slow readers, and what is left after a storm of cancelled requests."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.pitfalls.playing import CHUNKED, SSE, hang_up, says, soon
from tests.wire import dialects
from tests.wire.dialects import Dialect

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
CROWD = 150
MB = 2**20


class Crowd:
    """An endpoint whose streams begin at once and go on when they are told to."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.running = 0

    async def answer(self, exchange: Any) -> None:
        self.running += 1
        try:
            await exchange.stream()
            await exchange.chunk(b"data: first\n\n")
            waits = [asyncio.ensure_future(event.wait()) for event in (self.go_on, exchange.gone)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if not exchange.gone.is_set():
                await exchange.chunk(b"data: second\n\n")
                await exchange.end()
        finally:
            self.running -= 1


async def open_streams(proxy: Any, dialect: Dialect) -> list[Any]:
    wires = [await proxy.ask(dialect.path, dialect.request(f"agent {n}")) for n in range(CROWD)]
    await soon(asyncio.gather(*(wire.until(b"data: first\n\n") for wire in wires)), 10)
    return wires


async def test_a_hundred_and_fifty_streams_all_begin(endpoint: Any, proxy: Any, dialect: Dialect) -> None:
    """Row: "default connection limit of 100 throttles streams"."""
    crowd = Crowd()
    endpoint.answer = crowd.answer
    wires = await open_streams(proxy, dialect)
    assert crowd.running == CROWD
    crowd.go_on.set()
    await soon(asyncio.gather(*(wire.until(b"data: second\n\n") for wire in wires)), 10)


async def test_abandoned_streams_make_room(endpoint: Any, proxy: Any, dialect: Dialect) -> None:
    """Row: "abandoned streams hold a slot for life"."""
    crowd = Crowd()
    endpoint.answer = crowd.answer
    for _ in range(2):
        wires = await open_streams(proxy, dialect)
        gone = [seen.gone.wait() for seen in endpoint.seen]
        for wire in wires:
            wire.cut()
        await soon(asyncio.gather(*gone), 5)
    endpoint.answer = says(b'{"ok": 1}')
    wire = await proxy.ask(dialect.path, dialect.request())
    assert b'{"ok": 1}' in await soon(wire.until(b'{"ok": 1}'))
    assert len(endpoint.open) <= 1


def numbered(total: int) -> Iterator[bytes]:
    """`total` bytes and a little more, as events that no reader keeps."""
    sent = number = 0
    while sent < total:
        block = b": %012d " % number + b"x" * (2**16 - 17) + b"\n\n"
        yield block
        sent, number = sent + len(block), number + 1


def held_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / MB


@pytest.mark.parametrize(("path", "total"), [("/v1/chat/completions", 200), ("/v1/messages", 60), ("/v1/x", 60)])
async def test_a_reader_that_pauses_makes_the_endpoint_pause_and_loses_nothing(
    endpoint: Any, proxy: Any, path: str, total: int
) -> None:
    """Row: slow readers (back-pressure): what nobody reads is not swallowed by the proxy."""
    sent, done = hashlib.sha256(), asyncio.Event()
    stuck = asyncio.Event()
    progress = 0

    async def answer(exchange: Any) -> None:
        nonlocal progress
        await exchange.start(200, SSE, CHUNKED)
        for block in numbered(total * MB):
            sent.update(block)
            progress += len(block)
            sending = asyncio.ensure_future(exchange.chunk(block))
            if not (await asyncio.wait({sending}, timeout=0.3))[0]:
                stuck.set()
            await sending
        await exchange.end()
        done.set()

    endpoint.answer = answer
    before = held_mb()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, limit=2**16)
    body = dialects.chat.request()
    writer.write(f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    await reader.readuntil(b"\r\n\r\n")
    await soon(stuck.wait(), 20)
    assert progress < 40 * MB, f"{progress / MB:.0f} MB went into a proxy that nobody reads from"
    assert held_mb() - before < 60
    got = await soon(drained(reader), 30)
    await soon(done.wait())
    assert got == sent.hexdigest()
    assert held_mb() - before < 100
    writer.transport.abort()


async def drained(reader: asyncio.StreamReader) -> str:
    """Read a chunked body to its end; its hash."""
    found = hashlib.sha256()
    while size := int(await reader.readuntil(b"\r\n"), 16):
        found.update((await reader.readexactly(size + 2))[:-2])
    return found.hexdigest()


class Storm:
    """Workers that ask, and give up at random moments."""

    def __init__(self, proxy: Any, seed: int) -> None:
        self.proxy = proxy
        self.chance = random.Random(seed)
        self.running = 0
        self.finished = 0
        self.idle = asyncio.Event()

    async def answer(self, exchange: Any) -> None:
        self.running += 1
        self.idle.clear()
        try:
            await asyncio.sleep(self.chance.random() * 0.01)
            close = [("connection", "close")] * (self.chance.random() < 0.3)
            await exchange.stream(*close)
            for _ in range(4):
                await exchange.chunk(b"data: {}\n\n")
                await asyncio.sleep(self.chance.random() * 0.01)
            await exchange.end()
            if close:
                hang_up(exchange)
        finally:
            self.running -= 1
            if not self.running:
                self.idle.set()

    async def work(self, until: float) -> None:
        while asyncio.get_running_loop().time() < until:
            dialect = self.chance.choice(list(dialects.ALL.values()))
            wire = await self.proxy.ask(dialect.path, dialect.request(stream=self.chance.random() < 0.7))
            with contextlib.suppress(TimeoutError):
                patience = self.chance.random() * 0.1
                self.finished += bool(await asyncio.wait_for(wire.until(b"0\r\n\r\n"), patience))
            wire.cut() if self.chance.random() < 0.5 else wire.close()


async def test_after_a_storm_of_cancelled_requests_all_ten_of_ten_succeed_and_nothing_is_left_open(
    endpoint: Any, proxy: Any, client: httpx.AsyncClient
) -> None:
    """Row: "pool of 10, 20 workers, random cancels for 4 s, then 0 of 10 requests succeed"."""
    storm = Storm(proxy, 11)
    faults = (await client.get("/agentspec/status")).json()["faults"]
    endpoint.answer = storm.answer
    until = asyncio.get_running_loop().time() + 4
    await asyncio.gather(*(storm.work(until) for _ in range(20)))
    await soon(storm.idle.wait(), 5)
    assert storm.finished > 0
    assert len(endpoint.open) <= 20, "connections that nobody uses were left open"
    chosen = [dialect for dialect in dialects.ALL.values() for _ in range(4)][:10]
    wires = [await proxy.ask(dialect.path, dialect.request(str(n))) for n, dialect in enumerate(chosen)]
    answers = await soon(asyncio.gather(*(wire.until(b"0\r\n\r\n") for wire in wires)), 5)
    assert [answer.count(b"data: {}") for answer in answers] == [4] * 10
    assert (await client.get("/agentspec/status")).json()["faults"] == faults


@pytest.mark.parametrize(
    "module", ["app", "turn", "relay", "upstream", "upstream_connection", "upstream_answer", "asgi"]
)
def test_no_slow_client_and_no_framework_stands_in_every_requests_way(module: str) -> None:
    """Rows: "httpx costs 4x / 16x / 84x the CPU of aiohttp", "BaseHTTPMiddleware hides the disconnect"."""
    tree = ast.parse((ROOT / "proxy" / f"{module}.py").read_text())
    froms = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    named = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert {name.split(".")[0] for name in froms | named} & {"httpx", "httpx2", "requests", "starlette"} == set()
