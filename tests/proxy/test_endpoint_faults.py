"""What an agent is told when the endpoint is away, slow or talks nonsense."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

pytestmark = pytest.mark.anyio

PATHS = ["/v1/chat/completions", "/v1/embeddings"]


def check(response: httpx.Response, status: int, code: str) -> str:
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["type"], error["param"]) == (status, code, "api_error", None)
    assert "\n" not in error["message"]
    return str(error["message"])


@pytest.mark.parametrize("path", PATHS)
async def test_no_endpoint_is_a_clear_502(start_proxy: Any, chat: Callable[..., bytes], path: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    proxy = start_proxy(f"http://127.0.0.1:{port}/v1")
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
        told = check(await client.post(path, content=chat()), 502, "upstream_unreachable")
    assert f"127.0.0.1:{port}" in told
    assert "--upstream" in told


async def test_no_such_host_is_a_clear_502(start_proxy: Any, chat: Callable[..., bytes]) -> None:
    proxy = start_proxy("http://nowhere.invalid/v1")
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
        told = check(await client.post(PATHS[0], content=chat()), 502, "upstream_unreachable")
    assert "nowhere.invalid" in told


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("nonsense", [b"", b"HTTP/1.1 abc\r\n\r\n", b"hello?\r\n\r\n", b"HTTP/1.1 200 OK\r\nfoo"])
async def test_an_endpoint_that_closes_or_babbles_is_a_clear_502(
    endpoint: Any, client: httpx.AsyncClient, chat: Callable[..., bytes], path: str, nonsense: bytes
) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.raw(nonsense)
        exchange.wire.close()

    endpoint.answer = answer
    check(await client.post(path, content=chat()), 502, "upstream_unreachable")


@pytest.mark.parametrize("path", PATHS)
async def test_a_silent_endpoint_is_a_clear_504(
    endpoint: Any, start_proxy: Any, chat: Callable[..., bytes], path: str
) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.gone.wait()

    endpoint.answer = answer
    proxy = start_proxy(endpoint.url, upstream_timeout_s=0.2)
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
        told = check(await client.post(path, content=chat()), 504, "upstream_timeout")
    assert "upstream_timeout_s" in told


async def test_a_time_limit_below_a_second_is_not_told_as_none(
    endpoint: Any, start_proxy: Any, chat: Callable[..., bytes]
) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.gone.wait()

    endpoint.answer = answer
    proxy = start_proxy(endpoint.url, upstream_timeout_s=0.4)
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
        told = (await client.post(PATHS[0], content=chat())).json()["error"]["message"]
    assert "within 0 s" not in told


@pytest.mark.parametrize("body", [b'{"model":"m","messages":[]}', b'{"prompt":1}'])
async def test_an_endpoint_that_falls_silent_mid_stream_is_a_broken_body(
    endpoint: Any, start_proxy: Any, body: bytes
) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.stream()
        await exchange.chunk(b"data: 1\n\n")
        await exchange.gone.wait()

    endpoint.answer = answer
    proxy = start_proxy(endpoint.url, upstream_timeout_s=0.2)
    wire = await proxy.ask(PATHS[0], body)
    told = await asyncio.wait_for(wire.rest(), 5)
    assert b"data: 1\n\n" in told
    assert not told.endswith(b"0\r\n\r\n")


async def test_a_client_that_reads_late_is_no_silence_of_the_endpoint(endpoint: Any, start_proxy: Any) -> None:
    block, blocks = b"data: " + bytes(2**16 - 6), 400

    async def answer(exchange: Any) -> None:
        await exchange.stream()
        for _ in range(blocks):
            await exchange.chunk(block)
        await exchange.end()

    endpoint.answer = answer
    proxy = start_proxy(endpoint.url, upstream_timeout_s=0.4)
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, limit=2**16)
    writer.write(b"POST " + PATHS[0].encode() + b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}")
    await reader.readuntil(b"\r\n\r\n")
    await asyncio.sleep(1.2)
    read = 0
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
        read += size
    assert read == len(block) * blocks
    writer.close()


async def test_an_endpoint_that_speaks_all_the_time_is_not_silent(endpoint: Any, start_proxy: Any) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.stream()
        for _ in range(12):
            await exchange.chunk(b"data: 1\n\n")
            await asyncio.sleep(0.1)
        await exchange.end()

    endpoint.answer = answer
    proxy = start_proxy(endpoint.url, upstream_timeout_s=0.4)
    told = await (await proxy.ask(PATHS[0], b'{"model":"m","messages":[]}')).until(b"0\r\n\r\n")
    assert told.count(b"data: 1") == 12


async def test_connecting_in_vain_is_not_told_as_the_long_silence(
    monkeypatch: pytest.MonkeyPatch, start_proxy: Any, chat: Callable[..., bytes]
) -> None:
    monkeypatch.setattr("agentspec.proxy.upstream._CONNECT_LIMIT_S", 0.3)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        address = deaf.getsockname()
        full = [socket.socket() for _ in range(3)]
        for one in full:
            one.setblocking(False)
            one.connect_ex(address)
        proxy = start_proxy(f"http://127.0.0.1:{address[1]}/v1")
        async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
            response = await client.post(PATHS[0], content=chat())
        for one in full:
            one.close()
    assert response.status_code in (502, 504)
    assert "600 s" not in response.json()["error"]["message"]


async def test_headers_of_16_kb_pass(endpoint: Any, client: httpx.AsyncClient, chat: Callable[..., bytes]) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.whole(b"{}", 200, ("x-policy", "a" * 16_000))

    endpoint.answer = answer
    response = await client.post(PATHS[0], content=chat())
    assert response.headers.get("x-policy") == "a" * 16_000, response.text


async def test_openai_shows_our_error_as_its_own(start_proxy: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    proxy = start_proxy(f"http://127.0.0.1:{port}/v1")
    async with openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
    assert caught.value.status_code == 502
    assert caught.value.code == "upstream_unreachable"


async def test_a_connection_that_the_endpoint_closed_between_two_requests_is_not_used_again(
    endpoint: Any, client: httpx.AsyncClient, chat: Callable[..., bytes]
) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.whole(b"{}")
        exchange.wire.close()

    endpoint.answer = answer
    for _ in range(10):
        assert (await client.post(PATHS[0], content=chat())).status_code == 200


async def test_https_to_an_endpoint_that_speaks_http_is_a_clear_502(
    start_proxy: Any, chat: Callable[..., bytes]
) -> None:
    async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(speak_http, "127.0.0.1", 0)
    proxy = start_proxy(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
        check(await client.post(PATHS[0], content=chat()), 502, "upstream_unreachable")
    server.close()
