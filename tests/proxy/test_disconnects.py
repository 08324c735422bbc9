"""A client that leaves stops the endpoint; an endpoint that leaves never looks like a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio

SOON = 1.0


async def noticed(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), SOON)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_client_that_leaves_before_the_first_byte_stops_the_endpoint(
    endpoint: Any, proxy: Any, chat: Callable[..., bytes], path: str, streamed: bool
) -> None:
    stopped = asyncio.Event()

    async def answer(exchange: Any) -> None:
        await exchange.gone.wait()
        stopped.set()

    endpoint.answer = answer
    wire = await proxy.ask(path, chat(stream=streamed))
    await noticed(endpoint.asked)
    wire.close()
    await noticed(stopped)


@pytest.mark.parametrize("reset", [True, False])
async def test_a_client_that_leaves_mid_stream_stops_the_endpoint(
    endpoint: Any, proxy: Any, chat: Callable[..., bytes], reset: bool
) -> None:
    stopped = asyncio.Event()

    async def answer(exchange: Any) -> None:
        await exchange.stream()
        await exchange.chunk(b'data: {"choices":[]}\n\n')
        await exchange.gone.wait()
        stopped.set()

    endpoint.answer = answer
    wire = await proxy.ask("/v1/chat/completions", chat())
    await wire.until(b"choices")
    wire.cut() if reset else wire.close()
    await noticed(stopped)


async def test_a_client_that_leaves_while_its_body_is_read_reaches_no_endpoint(endpoint: Any, proxy: Any) -> None:
    wire = await proxy.connect()
    wire.writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{")
    await wire.writer.drain()
    wire.close()
    other = await proxy.ask("/healthz", method="GET")
    assert b"200" in await other.until(b"\r\n")
    assert endpoint.seen == []


async def test_a_reader_that_stops_reading_does_not_make_the_proxy_swallow_the_whole_answer(
    endpoint: Any, proxy: Any, chat: Callable[..., bytes]
) -> None:
    sent = 0
    stopped = asyncio.Event()

    async def answer(exchange: Any) -> None:
        nonlocal sent
        await exchange.stream()
        try:
            while sent < 200 * 2**20:
                await asyncio.wait_for(exchange.chunk(b"x" * 2**18), SOON)
                sent += 2**18
        except (TimeoutError, ConnectionError):
            pass
        stopped.set()

    endpoint.answer = answer
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, limit=2**16)
    body = chat()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    )
    await reader.readexactly(100)
    await asyncio.wait_for(stopped.wait(), 20)
    writer.transport.abort()
    assert sent < 100 * 2**20


async def broken_off(endpoint: Any, proxy: Any, body: bytes, *headers: tuple[str, str]) -> bytes:
    async def answer(exchange: Any) -> None:
        await exchange.start(200, ("content-type", "text/event-stream"), *headers)
        data = b'data: {"choices":[{"index":0,"delta":{"content":"half"}}]}\n\n'
        await (exchange.chunk(data) if ("transfer-encoding", "chunked") in headers else exchange.raw(data))
        await asyncio.wait_for(half.wait(), 5)
        exchange.wire.close()

    half = asyncio.Event()
    endpoint.answer = answer
    wire = await proxy.ask("/v1/chat/completions", body)
    start = await wire.until(b"half")
    half.set()
    return bytes(start + await asyncio.wait_for(wire.rest(), 5))


@pytest.mark.parametrize("framing", [("transfer-encoding", "chunked"), ("content-length", "10000")])
async def test_an_endpoint_that_breaks_off_breaks_our_answer_off(
    endpoint: Any, proxy: Any, chat: Callable[..., bytes], framing: tuple[str, str]
) -> None:
    told = await broken_off(endpoint, proxy, chat(), framing)
    assert b"half" in told
    assert not told.endswith(b"0\r\n\r\n")
    assert b'"error"' not in told


async def test_an_endpoint_that_breaks_off_during_a_request_of_unknown_shape_leaves_no_traceback(
    endpoint: Any, proxy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        told = await broken_off(endpoint, proxy, b'{"prompt": "x"}', ("transfer-encoding", "chunked"))
    assert not told.endswith(b"0\r\n\r\n")
    assert b'"error"' not in told
    assert [record.name for record in caplog.records if record.exc_info] == []


async def test_openai_raises_when_the_endpoint_breaks_off(
    endpoint: Any, proxy: Any, chat: Callable[..., bytes]
) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.stream()
        await exchange.chunk(b'data: {"choices":[]}\n\n')
        exchange.wire.close()

    endpoint.answer = answer
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post("/v1/chat/completions", content=chat())


async def test_after_a_storm_of_cancelled_requests_ten_of_ten_succeed(
    endpoint: Any, proxy: Any, chat: Callable[..., bytes]
) -> None:
    chance = random.Random(7)

    async def answer(exchange: Any) -> None:
        await asyncio.sleep(chance.random() * 0.01)
        await exchange.stream()
        for _ in range(4):
            await exchange.chunk(b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n')
            await asyncio.sleep(chance.random() * 0.01)
        await exchange.end()

    async def storm(until: float) -> int:
        done = 0
        while asyncio.get_running_loop().time() < until:
            wire = await proxy.ask("/v1/chat/completions", chat())
            with contextlib.suppress(TimeoutError):
                done += bool(await asyncio.wait_for(wire.until(b"0\r\n\r\n"), chance.random() * 0.1))
            wire.cut()
        return done

    endpoint.answer = answer
    until = asyncio.get_running_loop().time() + 4
    assert sum(await asyncio.gather(*(storm(until) for _ in range(20)))) > 0
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False, timeout=5) as client:
        answers = await asyncio.gather(*(client.post("/v1/chat/completions", content=chat()) for _ in range(10)))
        status = (await client.get("/agentspec/status")).json()
    assert [answer.status_code for answer in answers] == [200] * 10
    assert all(answer.content.count(b"data:") == 4 for answer in answers)
    assert status["faults"] == {}


async def test_cancelled_requests_leave_no_connection_to_the_endpoint_open(
    endpoint: Any, proxy: Any, chat: Callable[..., bytes]
) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.gone.wait()

    endpoint.answer = answer
    for number in range(20):
        endpoint.asked.clear()
        wire = await proxy.ask("/v1/chat/completions", chat(str(number)))
        await noticed(endpoint.asked)
        wire.cut()
    await asyncio.wait_for(asyncio.gather(*(seen.gone.wait() for seen in endpoint.seen)), SOON)
    assert len(endpoint.seen) == 20
