"""What the endpoint plays, and what came out at the other end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from agentspec.events import TurnEvent
from tests.proxy.conftest import Exchange
from tests.wire.answers import Answer
from tests.wire.dialects import Dialect

Play = Callable[[Exchange], Awaitable[None]]
Header = tuple[str, str]

JSON: Header = ("content-type", "application/json")
SSE: Header = ("content-type", "text/event-stream; charset=utf-8")
CHUNKED: Header = ("transfer-encoding", "chunked")
SOON = 2.0
"""Seconds after which nothing more is waited for."""


@dataclass(frozen=True, slots=True)
class Got:
    """An answer as a client got it: nothing decoded, nothing decompressed."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]


async def fetch(
    client: httpx.AsyncClient, path: str, content: bytes | None = None, method: str = "POST", **headers: str
) -> Got:
    """One request; `x_some_header="1"` becomes a header."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.stream(method, path, content=content, headers=sent) as response:
        body = b"".join([part async for part in response.aiter_raw()])
        raw = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw]
    return Got(response.status_code, raw, body)


def streams(*chunks: bytes, headers: Sequence[Header] = (SSE,), status: int = 200) -> Play:
    """Answer with these chunks, one after the other."""

    async def play(exchange: Exchange) -> None:
        await exchange.start(status, CHUNKED, *headers)
        for chunk in filter(None, chunks):
            await exchange.chunk(chunk)
        await exchange.end()

    return play


def says(body: bytes, *headers: Header, status: int = 200) -> Play:
    """Answer with this body in one piece."""

    async def play(exchange: Exchange) -> None:
        await exchange.whole(body, status, *(headers or (JSON,)))

    return play


def plays(dialect: Dialect, answer: Answer, streamed: bool) -> tuple[Play, bytes]:
    """An answer in one API's words, one event for each chunk; and its bytes."""
    if not streamed:
        return says(dialect.whole(answer)), dialect.whole(answer)
    data = dialect.stream(answer)
    return streams(*(event + b"\n\n" for event in data.split(b"\n\n")[:-1])), data


def read(dialect: Dialect, data: bytes, streamed: bool) -> list[TurnEvent]:
    """What agentspec itself reads out of an answer's bytes."""
    if not streamed:
        return dialect.api.read_answer(data)
    stream = dialect.api.open_stream()
    return [*stream.feed(data), *stream.finish()]


def hang_up(exchange: Exchange) -> None:
    """Close the endpoint's side of the connection."""
    exchange.wire.close()
    exchange.gone.set()


async def within(event: asyncio.Event, limit_s: float = SOON) -> float:
    """Wait for an event; how long it took."""
    began = asyncio.get_running_loop().time()
    await asyncio.wait_for(event.wait(), limit_s)
    return asyncio.get_running_loop().time() - began


async def soon(awaited: Awaitable[Any], limit_s: float = SOON) -> Any:
    return await asyncio.wait_for(awaited, limit_s)
