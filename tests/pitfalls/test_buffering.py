"""Wire and streaming, row 7: nothing waits for more, whatever the size of what is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.pitfalls.playing import CHUNKED, JSON, SSE, hang_up, soon
from tests.wire import dialects
from tests.wire.answers import CALL, REASONING, TEXT, Answer, Part
from tests.wire.dialects import Dialect

pytestmark = pytest.mark.anyio

PATHS = {**{name: dialect.path for name, dialect in dialects.ALL.items()}, "other": "/v1/audio/speech"}
ANSWER = Answer((Part(REASONING, ("a", "b")), Part(TEXT, ("c", "d")), Part(CALL, ('{"a', '": 1', "}"), "f", "call_1")))


class Dialogue:
    """An endpoint that sends its next chunk only after the client has confirmed the last one."""

    def __init__(self, *headers: tuple[str, str]) -> None:
        self.headers = headers
        self.chunks: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def answer(self, exchange: Any) -> None:
        framed = CHUNKED in self.headers
        await exchange.start(200, *self.headers)
        while (chunk := await self.chunks.get()) is not None:
            await (exchange.chunk(chunk) if framed else exchange.raw(chunk))
        if framed:
            await exchange.end()


async def talk(
    endpoint: Any, proxy: Any, path: str, body: bytes, chunks: list[bytes], *headers: tuple[str, str]
) -> Any:
    """Send chunk after chunk, each after the one before has arrived; the client's wire."""
    dialogue = Dialogue(*headers)
    endpoint.answer = dialogue.answer
    wire = await proxy.ask(path, body)
    assert b" 200 " in await soon(wire.until(b"\r\n\r\n")), "the head waits for the body"
    framed = ("transfer-encoding", "chunked") in headers
    for chunk in chunks:
        dialogue.chunks.put_nowait(chunk)
        await soon(arrives(wire, chunk) if framed else whole(wire, chunk))
    dialogue.chunks.put_nowait(None)
    if framed:
        assert await soon(wire.until(b"0\r\n\r\n")) == b"0\r\n\r\n"
    return wire


async def arrives(wire: Any, chunk: bytes) -> None:
    """These bytes arrive, in chunks of any size; nothing else does."""
    got = b""
    while len(got) < len(chunk):
        size = int((await wire.until(b"\r\n")).split(b";")[0], 16)
        got += (await wire.exactly(size + 2))[:-2]
    assert got == chunk


async def whole(wire: Any, chunk: bytes) -> None:
    assert await wire.exactly(len(chunk)) == chunk


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("kind", [SSE, JSON, ("content-type", "audio/mpeg")], ids=["sse", "json", "audio"])
@pytest.mark.parametrize("size", [1, 2, 7])
async def test_the_smallest_chunk_arrives_before_the_next_is_sent(
    endpoint: Any, proxy: Any, path: str, kind: tuple[str, str], size: int
) -> None:
    """Row: "bytes buffered (16 KB blocks, whole body): first token late"."""
    chunks = [b"%d" % (n % 10) * size for n in range(8)]
    await talk(endpoint, proxy, path, b'{"model": "m"}', chunks, kind, CHUNKED)


async def test_each_event_of_a_turn_arrives_before_the_next_is_sent(
    endpoint: Any, proxy: Any, dialect: Dialect, streamed: bool
) -> None:
    """Row: "bytes buffered ... first token late", with real events, also cut in two, and for a request that did not
    ask for a stream."""
    events = [event + b"\n\n" for event in dialect.stream(ANSWER).split(b"\n\n")[:-1]]
    halves = [half for event in events for half in (event[: len(event) // 2], event[len(event) // 2 :])]
    await talk(endpoint, proxy, dialect.path, dialect.request(stream=streamed), halves, SSE, CHUNKED)


async def test_a_whole_answer_is_passed_on_as_it_grows(endpoint: Any, proxy: Any, dialect: Dialect) -> None:
    """Row: "whole body" buffered: a body of known length is passed on piece by piece as well."""
    data = dialect.whole(ANSWER)
    chunks = [data[at : at + 40] for at in range(0, len(data), 40)]
    length = ("content-length", str(len(data)))
    await talk(endpoint, proxy, dialect.path, dialect.request(stream=False), chunks, JSON, length)


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
async def test_a_compressed_stream_is_not_held_back_until_it_can_be_read(
    endpoint: Any, proxy: Any, dialect: Dialect, encoding: str
) -> None:
    """Row: bytes buffered, in a compressed stream: half a compressed block passes as half a block."""
    chunks = [b"\x1f", b"\x8b\x08", b"\x00" * 7, b"\x01"]
    await talk(endpoint, proxy, dialect.path, dialect.request(), chunks, SSE, CHUNKED, ("content-encoding", encoding))


@pytest.mark.parametrize("size", [2**14 - 1, 2**14, 2**14 + 1, 2**16 + 1, 2**18 + 1, 2**20])
async def test_a_large_chunk_arrives_to_its_last_byte_before_the_next_is_sent(
    endpoint: Any, proxy: Any, dialect: Dialect, size: int
) -> None:
    """Row: "16 KB blocks": the bytes after the last full block do not wait for another."""
    event = b'data: {"choices": [], "x": "' + b"y" * (size - 34) + b'"}\n\n'
    await talk(endpoint, proxy, dialect.path, dialect.request(), [event, b": ping\n\n", event], SSE, CHUNKED)


async def test_the_head_arrives_before_the_first_byte_of_the_body(
    endpoint: Any, proxy: Any, dialect: Dialect, streamed: bool
) -> None:
    """Row: "first token late": clients see status and headers as soon as the endpoint has sent them."""
    await talk(endpoint, proxy, dialect.path, dialect.request(stream=streamed), [], SSE, CHUNKED)


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
async def test_a_body_without_a_length_is_passed_on_and_ends_well(endpoint: Any, proxy: Any, path: str) -> None:
    """Row: "whole body" buffered: an endpoint that marks the end by closing is passed on piece by piece."""
    dialogue = Dialogue(SSE, ("connection", "close"))
    endpoint.answer = closing(dialogue.answer)
    wire = await proxy.ask(path, b'{"model": "m"}')
    await soon(wire.until(b"\r\n\r\n"))
    for chunk in (b"data: 1\n\n", b"data: 2\n\n"):
        dialogue.chunks.put_nowait(chunk)
        await soon(arrives(wire, chunk))
    dialogue.chunks.put_nowait(None)
    assert await soon(wire.until(b"0\r\n\r\n")) == b"0\r\n\r\n"


def closing(answer: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    async def play(exchange: Any) -> None:
        await answer(exchange)
        hang_up(exchange)

    return play
