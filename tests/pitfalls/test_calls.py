"""Wire and streaming, rows 1 and 2: tool calls arrive whole, each as itself."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest

from tests.pitfalls.playing import fetch, plays, read, streams
from tests.wire import dialects
from tests.wire.answers import CALL, TEXT, Answer, Part, expected, heard
from tests.wire.dialects import Dialect, frames
from tests.wire.say_chat import chunk

pytestmark = pytest.mark.anyio

ZURICH = Part(CALL, ('{"ci', 'ty": "Z', 'ürich", "days"', ": [1, 2]", "}"), "weather", "call_a")
OSLO = Part(CALL, ('{"city"', ': "Oslo {"', "}"), "weather", "call_b")
ALONE = Answer((ZURICH,))
PARALLEL = Answer((Part(TEXT, ("Look", "ing")), ZURICH, OSLO), order=(0, 1, 2, 2, 1, 1, 2, 0, 1, 2) * 3)


async def relayed(endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, answer: Answer, streamed: bool) -> bytes:
    """The answer's bytes at the client; they are the endpoint's, or this fails."""
    endpoint.answer, sent = plays(dialect, answer, streamed)
    got = await fetch(client, dialect.path, dialect.request(stream=streamed))
    assert got.status == 200
    assert got.body == sent
    return got.body


async def test_a_call_comes_with_all_its_arguments(
    endpoint: Any, client: httpx.AsyncClient, turns: Any, dialect: Dialect, streamed: bool
) -> None:
    """Row: "argument deltas after the first are dropped"."""
    body = await relayed(endpoint, client, dialect, ALONE, streamed)
    assert heard(read(dialect, body, streamed)).calls == expected(ALONE).calls
    assert [turn["calls"] for turn in turns()] == [1]


@pytest.mark.parametrize("pieces", [("{}",), ("{", "}"), ()], ids=repr)
async def test_a_tool_without_arguments_is_called_without_arguments(
    endpoint: Any, client: httpx.AsyncClient, turns: Any, dialect: Dialect, streamed: bool, pieces: tuple[str, ...]
) -> None:
    """Row: "tool input arrives as `{}`" (where it is one, it still is a call)."""
    body = await relayed(endpoint, client, dialect, Answer((Part(CALL, pieces, "now", "call_n"),)), streamed)
    assert heard(read(dialect, body, streamed)).calls == {"call_n": ("now", {})}
    assert [turn["calls"] for turn in turns()] == [1]


async def test_a_tool_input_that_comes_whole_with_its_block_is_not_empty(
    endpoint: Any, client: httpx.AsyncClient
) -> None:
    """Row: "tool input arrives as `{}`": some gateways send the input with the block's start, and no deltas."""
    block = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
    data = frames(
        [
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_stop"},
        ]
    )
    endpoint.answer = streams(data)
    got = await fetch(client, "/v1/messages", dialects.messages.request())
    assert got.body == data
    assert heard(read(dialects.messages, got.body, True)).calls == {"toolu_1": ("weather", {"city": "Oslo"})}


async def test_a_stream_with_tools_ends_as_one_with_tools(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, streamed: bool
) -> None:
    """Row: "a stream with tools ends in `stop`"."""
    body = await relayed(endpoint, client, dialect, PARALLEL, streamed)
    wanted = {"chat": "tool_calls", "messages": "tool_use"}.get(dialect.api.name)
    told = heard(read(dialect, body, streamed)).reason
    assert told == wanted if wanted else told is not None


async def test_parallel_calls_stay_apart(
    endpoint: Any, client: httpx.AsyncClient, turns: Any, dialect: Dialect, streamed: bool
) -> None:
    """Row: "parallel calls all get index 0"; "first-only `id` repeated or lost"."""
    body = await relayed(endpoint, client, dialect, PARALLEL, streamed)
    told = heard(read(dialect, body, streamed))
    assert (told.calls, told.text) == (expected(PARALLEL).calls, "Looking")
    assert [turn["calls"] for turn in turns()] == [2]


async def test_the_openai_client_assembles_parallel_chat_calls(endpoint: Any, proxy: Any) -> None:
    """Row: "parallel calls all get index 0; `index` missing, so the client drops the tools"."""
    endpoint.answer, _ = plays(dialects.chat, PARALLEL, True)
    said: Any = [{"role": "user", "content": "x"}]
    async with (
        openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0) as sdk,
        sdk.chat.completions.stream(model="m", messages=said) as stream,
    ):
        final = await stream.get_final_completion()
    made = [(call.id, call.function.name, json.loads(call.function.arguments)) for call in _calls(final)]
    assert made == [(part.id, part.name, json.loads(part.whole)) for part in (ZURICH, OSLO)]
    assert final.choices[0].finish_reason == "tool_calls"


def _calls(completion: Any) -> list[Any]:
    return list(completion.choices[0].message.tool_calls)


async def test_the_openai_client_assembles_parallel_responses_calls(endpoint: Any, proxy: Any) -> None:
    """Row: "argument deltas after the first are dropped", in the Responses API."""
    one_by_one = Answer(PARALLEL.parts)
    endpoint.answer, _ = plays(dialects.responses, one_by_one, True)
    async with (
        openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0) as sdk,
        sdk.responses.stream(model="m", input="x") as stream,
    ):
        deltas = [event.delta async for event in stream if event.type == "response.function_call_arguments.delta"]
        final = await stream.get_final_response()
    made = [(item.call_id, item.name, item.arguments) for item in final.output if item.type == "function_call"]
    assert made == [(part.id, part.name, part.whole) for part in (ZURICH, OSLO)]
    assert deltas == [*ZURICH.pieces, *OSLO.pieces]


def fragments(index: int | None, part: Part, *, identity: str, named: str = "first") -> list[dict[str, Any]]:
    """A chat call's fragments by an endpoint of odd habits: where the id and the name are repeated, and the index."""
    found = []
    for number, piece in enumerate(("", *part.pieces)):
        function = {"arguments": piece}
        if number == 0 or named == "always":
            function["name"] = part.name
        fragment: dict[str, Any] = {"type": "function", "function": function}
        if index is not None:
            fragment["index"] = index
        if identity == "always" or (identity == "first" and number == 0):
            fragment["id"] = part.id
        elif identity == "empty" and number > 0:
            fragment["id"] = ""
        elif identity == "empty":
            fragment["id"] = part.id
        found.append(chunk({"tool_calls": [fragment]}))
    return found


@pytest.mark.parametrize("named", ["first", "always"])
@pytest.mark.parametrize(
    ("first", "second", "identity"),
    [
        (0, 1, "first"),
        (0, 1, "always"),
        (0, 1, "empty"),
        (0, 0, "always"),
        (0, 0, "first"),
        (None, None, "always"),
        (None, None, "first"),
    ],
)
async def test_calls_of_endpoints_with_odd_habits_pass_as_they_are_and_stay_apart(
    endpoint: Any,
    client: httpx.AsyncClient,
    named: str,
    first: int | None,
    second: int | None,
    identity: str,
) -> None:
    """Row: "parallel calls all get index 0; `index` missing ...; first-only `id` repeated or lost"."""
    spoken = [*fragments(first, ZURICH, identity=identity, named=named)]
    spoken += fragments(second, OSLO, identity=identity, named=named)
    data = frames([*spoken, chunk({}, "tool_calls"), "[DONE]"])
    endpoint.answer = streams(*(event + b"\n\n" for event in data.split(b"\n\n")[:-1]))
    got = await fetch(client, dialects.chat.path, dialects.chat.request())
    assert got.body == data
    assert heard(read(dialects.chat, got.body, True)).calls == expected(Answer((ZURICH, OSLO))).calls
