"""Connections to the endpoint that are kept, and closed by it just before we use them again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Forgetful:
    """Answers `patience` requests on each connection; at the next one it closes without a word."""

    def __init__(self) -> None:
        self.patience = 1
        self.connections = 0
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        for number in range(self.patience + 1):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(length)
            self.requests += 1
            if number == self.patience:
                break
            writer.write(ANSWER)
            await writer.drain()
        writer.close()


@pytest.fixture
async def forgetful() -> AsyncIterator[tuple[Forgetful, str]]:
    endpoint = Forgetful()
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
    yield endpoint, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    server.close()


async def test_a_kept_connection_that_the_endpoint_closed_is_no_failure(
    forgetful: tuple[Forgetful, str], start_proxy: Any, chat: Callable[..., bytes]
) -> None:
    endpoint, url = forgetful
    proxy = start_proxy(url)
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
        for _ in range(4):
            assert (await client.post("/v1/chat/completions", content=chat())).status_code == 200
    assert endpoint.connections == 4


async def test_an_endpoint_that_fails_on_a_fresh_connection_is_not_asked_twice(
    forgetful: tuple[Forgetful, str], start_proxy: Any, chat: Callable[..., bytes]
) -> None:
    endpoint, url = forgetful
    endpoint.patience = 0
    proxy = start_proxy(url)
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
        assert (await client.post("/v1/chat/completions", content=chat())).status_code == 502
    assert endpoint.requests == 1
