"""Relayed answers are read later than they go out, and before anybody acts on them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.protocols import UpstreamRequest
from agentspec.proxy import reading
from agentspec.proxy.answer_decoder import AnswerDecoder
from agentspec.proxy.reading import Reading, Rounds
from agentspec.proxy.relay import Client, answer
from agentspec.wire.apis import CHAT, MESSAGES, RESPONSES, WireApi
from tests.proxy.canned import Canned

TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'

chunks = st.lists(
    st.tuples(st.binary(min_size=1, max_size=9), st.booleans(), st.sampled_from(["go on", "pause", "all"]))
)


@given(chunks=chunks)
def test_what_went_out_is_read_once_and_in_order(chunks: list[tuple[bytes, bool, str]]) -> None:
    read: list[bytes] = []

    async def relay() -> None:
        rounds = Rounds()
        one = Reading(rounds, read.append)
        out = b""
        for chunk, at_once, then in chunks:
            one.add(chunk, at_once=at_once)
            out += chunk
            if then == "pause":
                await asyncio.sleep(0)
                assert not at_once or b"".join(read) == out
            elif then == "all":
                rounds.catch_up()
                assert b"".join(read) == out
        one.now()
        rounds.catch_up()

    asyncio.run(relay())
    assert b"".join(read) == b"".join(chunk for chunk, _, _ in chunks)
    assert all(read)


async def eventually(what: Any) -> None:
    for _ in range(400):
        if what():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come about")


@pytest.mark.anyio
async def test_a_round_reads_all_answers_and_the_next_begins_with_the_next_chunk() -> None:
    rounds, read = Rounds(), [[], []]  # type: Rounds, list[list[bytes]]
    one, two = (Reading(rounds, into.append) for into in read)
    one.add(b"a", at_once=False)
    two.add(b"b", at_once=False)
    one.add(b"c", at_once=False)
    assert read == [[], []]
    await eventually(lambda: read == [[b"ac"], [b"b"]])
    two.add(b"d", at_once=False)
    await eventually(lambda: read == [[b"ac"], [b"b", b"d"]])


@pytest.mark.anyio
async def test_of_a_fast_answer_no_more_than_some_kilobytes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ROUND_S", 60.0)
    read: list[bytes] = []
    one = Reading(Rounds(), read.append)
    for _ in range(3):
        one.add(bytes(40_000), at_once=False)
    await asyncio.sleep(0)
    assert sum(map(len, read)) == 120_000


@pytest.mark.parametrize(
    ("api", "piece", "shows"),
    [
        (CHAT, TEXT, False),
        (CHAT, b'{"choices":[{"delta":{"content":"a {name} \\"name\\": {}","tool_calls":null}}]}', False),
        (CHAT, b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}}]}', True),
        (CHAT, b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"a"}}]}}]}', False),
        (CHAT, b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}', True),
        (CHAT, b'{"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "}\\n"}}]}}]}', True),
        (CHAT, b'{"choices":[{"delta":{"function_call":{"name":"f"}}}]}', True),
        (MESSAGES, b'{"type":"content_block_delta","delta":{"type":"text_delta","text":"}"}}', False),
        (MESSAGES, b'{"type":"content_block_start","content_block":{"type":"tool_use","id":"t","name":"f"}}', True),
        (MESSAGES, b'{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}}', False),
        (MESSAGES, b'{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"1}"}}', True),
        (RESPONSES, b'{"type":"response.output_text.delta","delta":"}"}', False),
        (RESPONSES, b'{"type":"response.output_item.added","item":{"type":"function_call","name":"f"}}', True),
        (RESPONSES, b'{"type":"response.function_call_arguments.delta","delta":"{"}', False),
        (RESPONSES, b'{"type":"response.function_call_arguments.delta","delta":"}"}', True),
        (RESPONSES, b'{"type":"response.function_call_arguments.done","arguments":"{}"}', True),
        (RESPONSES, b'{"type":"response.output_item.added","item":{"type":"custom_tool_call","name":"f"}}', True),
    ],
)
def test_what_may_show_a_call_is_told_from_text(api: WireApi, piece: bytes, shows: bool) -> None:
    plain = AnswerDecoder([(b"content-type", b"text/event-stream")], api)
    packed = AnswerDecoder([(b"content-type", b"text/event-stream"), (b"content-encoding", b"gzip")], api)
    assert plain.may_show_call(piece) is shows
    assert packed.may_show_call(piece)  # nobody can tell


class CatchingUp:
    """An observer with a reading, and what had been told of it when each chunk went out."""

    def __init__(self) -> None:
        self.rounds = Rounds()
        self.read: list[bytes] = []
        self._reading = Reading(self.rounds, self.read.append)

    def opened(self, status: int, headers: Any) -> None: ...

    def relayed(self, chunk: bytes) -> None:
        self._reading.add(chunk, at_once=False)


@pytest.mark.anyio
async def test_whoever_has_all_read_sees_what_is_just_going_out() -> None:
    observer, went_out = CatchingUp(), b""

    async def send(message: Any) -> None:
        nonlocal went_out
        went_out += message.get("body", b"")
        observer.rounds.catch_up()
        assert b"".join(observer.read) == went_out

    async def receive() -> Any:
        await asyncio.Event().wait()

    request = UpstreamRequest("POST", "/chat/completions", (), b"{}")
    assert (await answer(Canned(), request, Client(receive, send, CHAT), observer)).whole  # type: ignore[arg-type]
    assert went_out == b"ab"
