"""The copy of the stream that speculation reads: compressed or not, streamed or whole, it never harms the relay."""

from __future__ import annotations

import gzip
import json
import logging
import zlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.events import TextDelta, TurnEnd, TurnEvent
from agentspec.proxy.answer_decoder import AnswerDecoder
from agentspec.proxy.relay import Client, answer
from agentspec.wire.apis import CHAT
from tests.proxy.canned import Canned

SSE = b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\ndata: {"choices":[{"finish_reason":"stop"}]}\n\n'
WHOLE = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}).encode()
TOLD = [TextDelta("hi"), TurnEnd("stop")]


def decode(data: bytes, cuts: list[int], *headers: tuple[bytes, bytes]) -> list[TurnEvent]:
    decoder = AnswerDecoder(headers, CHAT)
    marks = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    events = [event for a, b in pairwise(marks) for event in decoder.feed(data[a:b])]
    return events + decoder.finish()


@given(
    cuts=st.lists(st.integers(0, 500), max_size=8),
    packing=st.sampled_from(
        [("identity", bytes), ("gzip", gzip.compress), ("GZIP", gzip.compress), ("deflate", zlib.compress), ("", bytes)]
    ),
    streamed=st.booleans(),
)
def test_any_packing_and_cut_tells_the_same(cuts: list[int], packing: tuple[str, Any], streamed: bool) -> None:
    kind = b"Text/Event-Stream; charset=utf-8" if streamed else b"application/json"
    headers = [(b"content-type", kind)] + [(b"content-encoding", packing[0].encode())] * bool(packing[0])
    assert decode(packing[1](SSE if streamed else WHOLE), cuts, *headers) == TOLD


def test_two_gzip_members_are_one_answer() -> None:
    packed = gzip.compress(SSE[:40]) + gzip.compress(SSE[40:])
    headers = [(b"content-type", b"text/event-stream"), (b"content-encoding", b"gzip")]
    assert decode(packed, [len(gzip.compress(SSE[:40]))], *headers) == TOLD


def test_what_cannot_be_read_tells_nothing() -> None:
    headers = [(b"content-type", b"text/event-stream"), (b"content-encoding", b"br")]
    assert [event for event in decode(b"\x01\x02", [], *headers) if not isinstance(event, TurnEnd)] == []


@pytest.mark.anyio
async def test_an_answer_with_a_false_label_passes_and_costs_one_log_record(
    endpoint: Any, client: httpx.AsyncClient, chat: Callable[..., bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.stream(("content-encoding", "gzip"))
        for _ in range(3):
            await exchange.chunk(SSE)
        await exchange.end()

    endpoint.answer = answer
    with caplog.at_level(logging.WARNING):
        async with client.stream("POST", "/v1/chat/completions", content=chat()) as response:
            assert b"".join([part async for part in response.aiter_raw()]) == SSE * 3
        await client.get("/agentspec/status")  # what went out is read by then
    assert len(caplog.records) == 1


class Failing:
    """An observer that fails wherever it is asked to."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.seen: list[str] = []

    def _at(self, place: str) -> None:
        self.seen.append(place)
        if place == self._where:
            raise RuntimeError(place)

    def opened(self, status: int, headers: Any) -> None:
        self._at("opened")

    def relayed(self, chunk: bytes) -> None:
        self._at("relayed")


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["opened", "relayed", "nowhere"])
async def test_an_observer_that_fails_is_switched_off_and_the_answer_goes_on(where: str) -> None:
    import asyncio

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        await asyncio.Event().wait()

    upstream, observer = Canned(), Failing(where)
    ended = await answer(upstream, None, Client(receive, send, CHAT), observer)  # type: ignore[arg-type]
    assert ended.whole
    assert sent[0]["headers"] == [(b"content-type", b"text/event-stream")]
    assert b"".join(message.get("body", b"") for message in sent[1:]) == b"ab"
    assert not sent[-1].get("more_body")
    assert upstream.closed == 1
    assert observer.seen.count(where) <= 1 or where == "nowhere"
