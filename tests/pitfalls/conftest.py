"""The scripted endpoint and the real proxy of `tests/proxy`, for every API; no test may leave a traceback behind."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest

from agentspec.config import load
from agentspec.memory.ledger_reader import LedgerReader
from tests.proxy.conftest import Endpoint, Proxy, StartProxy, Wire, anyio_backend, start_proxy
from tests.wire.dialects import ALL, Dialect

__all__ = ["anyio_backend", "start_proxy"]


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever an endpoint or a client does, the proxy's log holds no traceback."""
    caplog.set_level(logging.WARNING)
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.exc_info] == []


@pytest.fixture(scope="session")
def endpoint_port() -> int:
    """Where every test's endpoint listens, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
async def endpoint(endpoint_port: int) -> AsyncIterator[Endpoint]:
    """The scripted endpoint; a test sets its `answer`."""

    async def forgotten(exchange: Any) -> None:
        await exchange.whole(b"{}", 200, ("content-type", "application/json"))

    made = Endpoint(forgotten)
    server = await asyncio.start_server(made.serve, "127.0.0.1", endpoint_port, backlog=512)
    made.url = f"http://127.0.0.1:{endpoint_port}/v1"
    try:
        yield made
    finally:
        server.close()
        for wire in list(made.open):
            wire.cut()


class LongLived(Proxy):
    """A proxy that serves many tests: connections that one test has left open are closed before the next."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._wires: list[Wire] = []

    async def connect(self) -> Wire:
        self._wires.append(await super().connect())
        return self._wires[-1]

    def hang_up(self) -> None:
        while self._wires:
            self._wires.pop().cut()


@pytest.fixture(scope="session")
def long_lived_proxy(endpoint_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LongLived]:
    """One proxy for all tests that need none of their own."""
    database = f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'ledger.sqlite3'}"
    kept = {"database": database, "memory_database": ""}
    made = LongLived(load({"upstream": f"http://127.0.0.1:{endpoint_port}/v1", **kept}))
    yield made
    made.stop()


@pytest.fixture
async def proxy(request: pytest.FixtureRequest, endpoint: Endpoint, start_proxy: StartProxy) -> AsyncIterator[Proxy]:
    """The proxy before the endpoint: a test that reads its books gets one of its own."""
    if "turns" in request.fixturenames:
        yield start_proxy(endpoint.url)
        return
    shared: LongLived = request.getfixturevalue("long_lived_proxy")
    yield shared
    shared.hang_up()


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the proxy; without certificates, whose reading would be most of a test's time."""
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False, timeout=20, verify=False) as made:
        yield made


@pytest.fixture(params=ALL)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Each API in turn."""
    return ALL[request.param]


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def streamed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def turns(proxy: Proxy) -> Callable[[], list[dict[str, Any]]]:
    """Stop the proxy and read its books: every turn, in the order in which they began."""

    def read() -> list[dict[str, Any]]:
        proxy.stop()
        books = LedgerReader(proxy.settings.database)
        rows = [dict(turn) for row in books.trajectories() for turn in books.turns(row["trajectory"])]
        return sorted(rows, key=lambda row: row["began_at"])

    return read
