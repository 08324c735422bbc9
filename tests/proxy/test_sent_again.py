"""When a request is sent to the endpoint again: where nothing of it can have been seen, and never else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from agentspec.errors import UpstreamError
from agentspec.protocols import UpstreamRequest
from agentspec.proxy import upstream as upstreams_module
from agentspec.proxy.upstream import HttpUpstream

pytestmark = pytest.mark.anyio

RESPONSES = "/v1/responses"
ALL = ["/v1/chat/completions", RESPONSES, "/v1/messages", "/v1/embeddings", "/v1/messages/count_tokens"]
BODY = b'{"model":"m","messages":[],"input":"x","max_tokens":1}'
REQUEST = UpstreamRequest("POST", "/x", [(b"content-type", b"application/json")], b"{}")
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


@pytest.fixture
async def refusing(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[socket.socket, HttpUpstream]]:
    """A port that refuses connections until somebody listens, and the way to it."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        upstream = HttpUpstream(f"http://127.0.0.1:{closed.getsockname()[1]}", 5.0)
        yield closed, upstream
        await upstream.close()


@pytest.mark.parametrize("refusals", [1, 2])
async def test_an_endpoint_that_restarts_is_asked_again_until_it_is_back(
    refusing: tuple[socket.socket, HttpUpstream], monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    closed, upstream = refusing
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"{}"))
        writer.write(WHOLE)

    tries = 0

    async def send(*arguments: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == refusals + 1:
            await asyncio.start_server(serve, sock=closed)
        return await plain(*arguments)

    plain = upstream._send
    monkeypatch.setattr(upstream, "_send", send)
    response = await upstream.open(REQUEST)
    assert (response.status, tries, len(seen)) == (200, refusals + 1, 1)
    await response.close()


async def test_a_restart_of_a_fifth_of_a_second_is_waited_for(
    refusing: tuple[socket.socket, HttpUpstream], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(upstreams_module, "_RETRYING", upstreams_module._RETRYING.copy(sleep=sleep))
    with pytest.raises(UpstreamError, match="cannot reach the endpoint"):
        await refusing[1].open(REQUEST)
    assert 0.2 <= sum(waits) <= 0.5


class Cutting:
    """Answers `good` requests on each connection; at the next one it says `last` and closes."""

    def __init__(self, good: int, last: bytes) -> None:
        self.good, self.last = good, last
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            for number in range(self.good + 1):
                await reader.readuntil(b"}")
                self.requests += 1
                writer.write(WHOLE if number < self.good else self.last)
                await writer.drain()
        writer.close()


@pytest.fixture
async def cutting() -> AsyncIterator[Callable[..., Any]]:
    """cutting(good, last): such an endpoint and its URL."""
    servers = []

    async def made(good: int, last: bytes) -> tuple[Cutting, str]:
        endpoint = Cutting(good, last)
        servers.append(await asyncio.start_server(endpoint.serve, "127.0.0.1", 0))
        return endpoint, f"http://127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}/v1"

    yield made
    for server in servers:
        server.close()


BEGUN = {
    "half a status line": b"HTTP/1.1 20",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-ty",
    "half a body": b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{",
    "half a stream": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
}


@pytest.mark.parametrize("kept", [0, 1], ids=["fresh connection", "kept connection"])
@pytest.mark.parametrize("begun", BEGUN)
async def test_a_request_whose_answer_has_begun_is_not_sent_again(
    cutting: Callable[..., Any], start_proxy: Any, begun: str, kept: int
) -> None:
    endpoint, url = await cutting(kept, BEGUN[begun])
    async with httpx.AsyncClient(base_url=start_proxy(url).url, trust_env=False) as client:
        for _ in range(kept):
            assert (await client.post(RESPONSES, content=BODY)).status_code == 200
        try:
            assert (await client.post(RESPONSES, content=BODY)).status_code == 502
        except httpx.RemoteProtocolError:
            assert "body" in begun or "stream" in begun, "broken off, as the endpoint's was"
    assert endpoint.requests == kept + 1


async def test_a_request_that_may_have_been_seen_on_a_fresh_connection_is_not_sent_again(
    cutting: Callable[..., Any], start_proxy: Any
) -> None:
    endpoint, url = await cutting(0, b"")
    async with httpx.AsyncClient(base_url=start_proxy(url).url, trust_env=False) as client:
        for path in ALL:
            answer = await client.post(path, content=BODY)
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert endpoint.requests == len(ALL)
