"""Connections, row 1: a client that leaves is noticed in every phase, at once, by everyone it concerns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.pitfalls.playing import CHUNKED, JSON, SSE, soon, within
from tests.wire import dialects
from tests.wire.answers import CALL, TEXT, Answer, Part
from tests.wire.dialects import Dialect

pytestmark = pytest.mark.anyio

PATHS = {**{name: dialect.path for name, dialect in dialects.ALL.items()}, "other": "/v1/embeddings"}
AT_ONCE = 1.0
"""Seconds: measured are a few milliseconds; more than this is a fault on the busiest machine."""


class Watched:
    """An endpoint that gets so far with its answer, and then waits for the other side to leave."""

    def __init__(self, *steps: bytes, headers: tuple[tuple[str, str], ...] = (SSE, CHUNKED)) -> None:
        self.steps = steps
        self.headers = headers
        self.waiting = asyncio.Event()
        self.left = asyncio.Event()

    async def answer(self, exchange: Any) -> None:
        if self.steps:
            await exchange.start(200, *self.headers)
        for step in self.steps:
            if CHUNKED in self.headers:
                await exchange.chunk(step)
            else:
                await exchange.raw(step)
        self.waiting.set()
        await exchange.gone.wait()
        self.left.set()


def leave(wire: Any, how: str) -> None:
    wire.cut() if how == "reset" else wire.close()


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
async def test_leaving_before_the_first_byte_stops_the_endpoint(
    endpoint: Any, proxy: Any, path: str, streamed: bool, how: str
) -> None:
    """Row: "client leaves before the first byte or in a non-streamed call: upstream keeps generating"."""
    watched = Watched()
    endpoint.answer = watched.answer
    wire = await proxy.ask(path, dialects.chat.request(stream=streamed))
    await within(watched.waiting)
    leave(wire, how)
    took = await within(watched.left)
    assert took < AT_ONCE, f"noticed after {took * 1000:.0f} ms; 100 are aimed at"


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
async def test_leaving_in_mid_stream_stops_the_endpoint(endpoint: Any, proxy: Any, path: str, how: str) -> None:
    """Row: the client leaves in mid-stream, while the endpoint is silent."""
    watched = Watched(b"data: {}\n\n")
    endpoint.answer = watched.answer
    wire = await proxy.ask(path, dialects.chat.request())
    await soon(wire.until(b"data: {}\n\n"))
    leave(wire, how)
    took = await within(watched.left)
    assert took < AT_ONCE, f"noticed after {took * 1000:.0f} ms; 100 are aimed at"


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
async def test_leaving_in_the_middle_of_a_whole_answer_stops_the_endpoint(
    endpoint: Any, proxy: Any, path: str, how: str
) -> None:
    """Row: the client leaves "in a non-streamed call", after the head and half of the body."""
    watched = Watched(b'{"half": ', headers=(JSON, ("content-length", "1000")))
    endpoint.answer = watched.answer
    wire = await proxy.ask(path, dialects.chat.request(stream=False))
    await soon(wire.until(b'{"half": '))
    leave(wire, how)
    took = await within(watched.left)
    assert took < AT_ONCE, f"noticed after {took * 1000:.0f} ms; 100 are aimed at"


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
async def test_leaving_while_the_endpoint_is_being_connected_to_leaves_nothing_behind(
    endpoint: Any, proxy: Any, path: str
) -> None:
    """Row: leaving before the first byte, in the earliest moments: also a request that was just sent is let go."""
    watched = Watched()
    endpoint.answer = watched.answer
    for _ in range(20):
        wire = await proxy.ask(path, dialects.chat.request())
        await asyncio.sleep(0)
        wire.cut()
    after = await proxy.ask("/healthz", method="GET")
    assert b" 200 " in await soon(after.until(b"\r\n\r\n"))
    await soon(asyncio.gather(*(seen.gone.wait() for seen in endpoint.seen)))


async def test_requests_in_one_pipe_are_answered_one_after_the_other(
    endpoint: Any, proxy: Any, dialect: Dialect
) -> None:
    """Row: one connection, the next request already in the pipe: each has its own answer, in order."""

    async def answer(exchange: Any) -> None:
        await exchange.whole(b"%d;" % exchange.body.count(b"again"), 200, JSON)

    endpoint.answer = answer
    wire = await proxy.connect()
    for number in range(3):
        body = dialect.request("again" * number)
        head = f"POST {dialect.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        wire.writer.write(head + body)
    assert [(await soon(wire.until(b";")))[-2:] for _ in range(3)] == [b"0;", b"1;", b"2;"]


async def test_leaving_with_more_requests_in_the_pipe_leaves_no_traceback(
    endpoint: Any, proxy: Any, dialect: Dialect
) -> None:
    """Row: leaving, with more requests in the pipe than were answered: nobody is answered, nothing fails."""
    body = dialect.request()
    head = f"POST {dialect.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    for _ in range(10):
        wire = await proxy.connect()
        wire.writer.write((head + body) * 3)
        wire.writer.write_eof()
        await soon(wire.rest())
    after = await proxy.ask("/healthz", method="GET")
    assert b" 200 " in await soon(after.until(b"\r\n\r\n"))


async def test_leaving_half_way_is_keeping_the_line_open(endpoint: Any, proxy: Any, dialect: Dialect) -> None:
    """Row: a client that has only closed its sending side (`shutdown`) may still be read to or be let go, but it
    must not leave the endpoint running for ever."""
    watched = Watched(b"data: {}\n\n")
    endpoint.answer = watched.answer
    wire = await proxy.ask(dialect.path, dialect.request())
    await soon(wire.until(b"data: {}\n\n"))
    wire.writer.write_eof()
    await within(watched.left)


CALLS = Answer((Part(TEXT, ("Let me see.",)), Part(CALL, ('{"a"', ": 1}"), "f", "call_1")))


def cut_at(dialect: Dialect, mark: bytes) -> bytes:
    """The stream up to and with the event that holds these bytes (counted from the last such event)."""
    data = dialect.stream(CALLS)
    return data[: data.index(b"\n\n", data.rindex(mark)) + 2]


LAST_OF_THE_CALL = {"chat": b'": 1}"', "responses": b"response.output_item.done", "messages": b"content_block_stop"}
FIRST_OF_THE_CALL = {"chat": b'{\\"a\\"', "responses": b'"delta": "{\\"a', "messages": b'"{\\"a\\"'}


async def test_a_client_that_has_all_calls_has_not_gone_away(
    endpoint: Any, proxy: Any, turns: Any, dialect: Dialect
) -> None:
    """How long a bet lives: SDKs stop reading before `[DONE]`; the turn has come to its end, no bet is dropped."""
    begun = cut_at(dialect, LAST_OF_THE_CALL[dialect.api.name])
    watched = Watched(begun)
    endpoint.answer = watched.answer
    wire = await proxy.ask(dialect.path, dialect.request())
    await soon(wire.until(begun[-40:]))
    wire.close()
    await within(watched.left)
    assert [(turn["calls"], turn["note"]) for turn in turns()] == [(1, "")]


async def test_a_client_that_has_half_a_call_has_gone_away(
    endpoint: Any, proxy: Any, turns: Any, dialect: Dialect
) -> None:
    """How long a bet lives: one that leaves earlier will not make the call."""
    begun = cut_at(dialect, FIRST_OF_THE_CALL[dialect.api.name])
    watched = Watched(begun)
    endpoint.answer = watched.answer
    wire = await proxy.ask(dialect.path, dialect.request())
    await soon(wire.until(begun[-40:]))
    wire.close()
    await within(watched.left)
    assert [(turn["calls"], turn["note"]) for turn in turns()] == [(0, "the client left")]
