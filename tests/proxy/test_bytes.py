"""What the agent gets is what the endpoint sent, byte for byte."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.anyio

STREAM = (
    b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"Z\xc3\xbcrich\xe2\x80\xa8"}}]}\r\n\r\n'
    b": keep-alive\n\n"
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f"}}]}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}\n\n'
    b"data: this is no JSON\n\n"
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"unknown":{"x":[1.0]}}}\n\n'
    b"data: [DONE]\n\n"
)
cuts = st.lists(st.integers(1, len(STREAM) - 1), unique=True, max_size=12).map(sorted)
real_sockets = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def pieces(data: bytes, at: list[int]) -> list[bytes]:
    return [data[a:b] for a, b in pairwise([0, *at, len(data)])]


@given(at=cuts, packed=st.booleans(), streamed=st.booleans())
@real_sockets
async def test_a_stream_arrives_unchanged_however_it_was_cut(
    endpoint: Any, client: httpx.AsyncClient, chat: Callable[..., bytes], at: list[int], packed: bool, streamed: bool
) -> None:
    sent = gzip.compress(STREAM) if packed else STREAM

    async def answer(exchange: Any) -> None:
        await exchange.stream(*[("content-encoding", "gzip")] * packed)
        for piece in filter(None, pieces(sent, [min(cut, len(sent)) for cut in at])):
            await exchange.chunk(piece)
        await exchange.end()

    endpoint.answer = answer
    async with client.stream("POST", "/v1/chat/completions", content=chat(stream=streamed)) as response:
        raw = b"".join([part async for part in response.aiter_raw()])
    assert raw == sent
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers.get("content-encoding") == ("gzip" if packed else None)


async def test_each_chunk_arrives_before_the_next_is_sent(
    endpoint: Any, proxy: Any, chat: Callable[..., bytes]
) -> None:
    import asyncio

    step = asyncio.Event()

    async def answer(exchange: Any) -> None:
        await exchange.stream()
        for number in range(5):
            await exchange.chunk(b'data: {"n": %d}\n\n' % number)
            await step.wait()
            step.clear()
        await exchange.end()

    endpoint.answer = answer
    wire = await proxy.ask("/v1/chat/completions", chat())
    for number in range(5):
        assert b'{"n": %d}' % number in await wire.until(b"}\n\n")
        step.set()
    assert (await wire.until(b"0\r\n\r\n")).endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("status", [400, 401, 404, 409, 413, 422, 429, 500, 503, 529])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_an_error_of_the_endpoint_passes_with_its_headers_and_its_own_words(
    endpoint: Any, client: httpx.AsyncClient, chat: Callable[..., bytes], status: int, path: str
) -> None:
    told = (
        ("content-type", "application/problem+json"),
        ("retry-after", "7"),
        ("retry-after-ms", "7000"),
        ("x-should-retry", "false"),
        ("x-request-id", "req_1"),
        ("x-ratelimit-remaining-tokens", "0"),
    )
    body = b'{"error" : {"message":"no\\u2028","type":"weird", "code":null, "extra":[1.0]}}\n'

    async def answer(exchange: Any) -> None:
        await exchange.whole(body, status, *told)

    endpoint.answer = answer
    response = await client.post(path, content=chat())
    assert (response.status_code, response.content) == (status, body)
    assert [response.headers[name] for name, _ in told] == [value for _, value in told]


async def test_a_whole_answer_passes_unchanged(
    endpoint: Any, client: httpx.AsyncClient, chat: Callable[..., bytes]
) -> None:
    body = b' {"choices": [ {"message": {"content": "\\u00e9", "x": 1.0}} ] , "id" : null}\n'

    async def answer(exchange: Any) -> None:
        await exchange.whole(body, 200, ("content-type", "application/json"))

    endpoint.answer = answer
    response = await client.post("/v1/chat/completions", content=chat(stream=False))
    assert response.content == body
    assert response.headers["content-length"] == str(len(body))


async def test_the_request_body_reaches_the_endpoint_unchanged(endpoint: Any, client: httpx.AsyncClient) -> None:
    body = b'{ "stream":false,"model" :"m", "messages":[{"role":"user","content":"\\u00e9 \xc3\xa9"}],"x":1.0,"x":2 }\n'
    await client.post("/v1/chat/completions?beta=true&q=a%2Fb", content=body)
    assert endpoint.seen[0].body == body
    assert endpoint.seen[0].path == "/v1/chat/completions?beta=true&q=a%2Fb"


@pytest.mark.parametrize("depth", [1_000, 100_000])
async def test_json_nested_absurdly_deep_is_answered_not_crashed_on(
    endpoint: Any, client: httpx.AsyncClient, depth: int
) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":' + b"[" * depth + b"]" * depth + b"}]}"
    response = await client.post("/v1/chat/completions", content=body)
    assert response.status_code in (200, 400)
    assert response.headers["content-type"] == "application/json"


async def test_a_compressed_request_is_the_endpoints_to_read(
    endpoint: Any, client: httpx.AsyncClient, chat: Callable[..., bytes]
) -> None:
    packed = gzip.compress(chat())
    response = await client.post("/v1/chat/completions", content=packed, headers={"content-encoding": "gzip"})
    assert response.status_code == 200, response.text
    assert endpoint.seen[0].body == packed
    assert endpoint.seen[0].header(b"content-encoding") == [b"gzip"]
