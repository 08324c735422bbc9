"""An endpoint that does what a test tells it to, and the real proxy before it; both on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from agentspec.config import Settings, load
from agentspec.proxy.server import server_config
from agentspec.proxy.wiring import build


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Wire:
    """One connection, read all the time, so that its end is noticed at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.data = bytearray()
        self.gone = asyncio.Event()
        self._more = asyncio.Condition()
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := await self._reader.read(2**16):
                async with self._more:
                    self.data += chunk
                    self._more.notify_all()
        self.gone.set()
        async with self._more:
            self._more.notify_all()

    async def until(self, mark: bytes) -> bytes:
        """Bytes up to and with `mark`; b"" where the peer left before."""
        async with self._more:
            await self._more.wait_for(lambda: mark in self.data or self.gone.is_set())
        end = self.data.find(mark)
        return self._take(end + len(mark) if end >= 0 else 0)

    async def exactly(self, size: int) -> bytes:
        async with self._more:
            await self._more.wait_for(lambda: len(self.data) >= size or self.gone.is_set())
        return self._take(size)

    async def rest(self) -> bytes:
        """Everything until the peer closes."""
        await self.gone.wait()
        return self._take(len(self.data))

    def _take(self, size: int) -> bytes:
        taken = bytes(self.data[:size])
        del self.data[:size]
        return taken

    def cut(self) -> None:
        """Close with a reset."""
        self._task.cancel()
        if not self.writer.transport.is_closing():
            sock = self.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.writer.transport.abort()

    def close(self) -> None:
        self._task.cancel()
        self.writer.close()


@dataclass
class Exchange:
    """A request as the endpoint got it, and the means to answer it."""

    wire: Wire
    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def gone(self) -> asyncio.Event:
        return self.wire.gone

    def header(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name]

    async def raw(self, data: bytes) -> None:
        self.wire.writer.write(data)
        await self.wire.writer.drain()

    async def start(self, status: int = 200, *headers: tuple[str, str]) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        await self.raw(f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode("latin-1"))

    async def stream(self, *headers: tuple[str, str]) -> None:
        await self.start(200, ("content-type", "text/event-stream"), ("transfer-encoding", "chunked"), *headers)

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def whole(self, body: bytes, status: int = 200, *headers: tuple[str, str]) -> None:
        await self.start(status, ("content-length", str(len(body))), *headers)
        await self.raw(body)


Answer = Callable[[Exchange], Awaitable[None]]


@dataclass
class Endpoint:
    """The scripted endpoint; `answer` is what it does with each request."""

    answer: Answer
    url: str = ""
    seen: list[Exchange] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with every request."""
    open: set[Wire] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        self.open.add(wire)
        try:
            while head := await wire.until(b"\r\n\r\n"):
                first, *lines = head[:-4].split(b"\r\n")
                method, path, _ = first.decode("latin-1").split(" ")
                headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
                length = next((int(v) for k, v in headers if k.lower() == b"content-length"), 0)
                exchange = Exchange(wire, method, path, headers, await wire.exactly(length))
                self.seen.append(exchange)
                self.asked.set()
                await self.answer(exchange)
        except ConnectionError:
            pass
        finally:
            wire.close()
            self.open.discard(wire)


async def _say_hello(exchange: Exchange) -> None:
    await exchange.whole(b'{"hello": 1}', 200, ("content-type", "application/json"))


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    made = Endpoint(_say_hello)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield made
    finally:
        for wire in list(made.open):
            wire.cut()
        server.close()


class Proxy:
    """The proxy on a thread of its own, served as the command serves it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = server_config(build(settings), settings)
        config.timeout_graceful_shutdown = 1
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self.listener]}, daemon=True)
        self._thread.start()

    async def connect(self) -> Wire:
        """A plain connection to the proxy."""
        return Wire(*await asyncio.open_connection("127.0.0.1", self.port))

    async def ask(self, path: str, body: bytes | None = None, method: str = "POST", headers: str = "") -> Wire:
        """Send one request by hand."""
        wire = await self.connect()
        length = "" if body is None else f"content-length: {len(body)}\r\n"
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}{length}\r\n"
        wire.writer.write(head.encode("latin-1") + (body or b""))
        await wire.writer.drain()
        return wire

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._server.force_exit = True
        self._thread.join(10)
        self.listener.close()
        assert not self._thread.is_alive(), "the proxy did not stop"


StartProxy = Callable[..., Proxy]


@pytest.fixture
def start_proxy(tmp_path: Path) -> Iterator[StartProxy]:
    """Start a proxy with these settings; the ledger lies in the test's own folder."""
    with contextlib.ExitStack() as stack:

        def start(upstream: str, **settings: Any) -> Proxy:
            database = settings.pop("database", f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
            proxy = Proxy(load({"upstream": upstream, "database": database, "memory_database": "", **settings}))
            stack.callback(proxy.stop)
            return proxy

        yield start


@pytest.fixture
def proxy(endpoint: Endpoint, start_proxy: StartProxy) -> Proxy:
    return start_proxy(endpoint.url)


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False, timeout=20) as made:
        yield made


@pytest.fixture
def chat() -> Callable[..., bytes]:
    """A chat request's body."""

    def body(*said: str, **more: Any) -> bytes:
        messages = [{"role": "user", "content": text} for text in said or ("hello",)]
        return json.dumps({"model": "m", "messages": messages, "stream": True, **more}).encode()

    return body
