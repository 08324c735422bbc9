"""The recorded endpoint as the openai SDK and a bare HTTP client see it, over a real socket."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from agentspec.proxy.replay.endpoint import Pace, RecordedEndpoint
from agentspec.proxy.replay.recordings import load
from agentspec.proxy.replay.serve import serving

SYSTEM = {"role": "system", "content": "Be brief."}
GREETING = {"role": "assistant", "content": "Hello, how can I help?"}
QUESTION = {"role": "user", "content": "Compare Zürich and Oslo\u2028please"}


def called(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


CALLS = {
    "role": "assistant",
    "content": "Looking both up.",
    "tool_calls": [
        called("x", "weather", '{ "days":3, "city":"Z\\u00fcrich\\u2028"}'),
        called("y", "weather", '{"city": "Oslo", "days": 3}'),
    ],
}
RAIN = {"role": "tool", "tool_call_id": "x", "content": '{"sky": "rain"}'}
UNKNOWN = {"role": "tool", "tool_call_id": "y", "content": "Error: no such city"}
OPENING = [SYSTEM, GREETING, QUESTION]
STOCK_OPENING = [{"role": "user", "content": "How many are left?"}]


def ask(client: openai.OpenAI, messages: list[dict[str, Any]], model: str = "weather", **more: Any) -> Any:
    return client.chat.completions.create(model=model, messages=messages, **more)  # type: ignore[arg-type]


def events_of(client: openai.OpenAI, messages: list[dict[str, Any]], **more: Any) -> list[Any]:
    """The events of a stream, its raw bytes split at newlines only."""
    body = {"model": "weather", "messages": messages, "stream": True, **more}
    raw = httpx.post(f"{client.base_url}chat/completions", json=body).content
    data = [line.removeprefix(b"data: ") for line in raw.split(b"\n") if line]
    assert data.pop() == b"[DONE]"
    return [json.loads(event) for event in data]


def test_answers_whole(connect):
    reply = ask(connect(), OPENING)
    message = reply.choices[0].message
    assert message.content == "Looking both up."
    assert message.reasoning_content == "Both cities are needed, so ask for both at once."
    assert [call.id for call in message.tool_calls] == ["toolu_a", "toolu_b"]
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Zürich\u2028", "days": 3}
    assert reply.choices[0].finish_reason == "tool_calls"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens > 0


def test_streams_reasoning_then_text_then_each_call(connect):
    choices = [event["choices"][0] for event in events_of(connect(), OPENING)]
    kinds = [next(iter(choice["delta"]), "end") for choice in choices]
    assert kinds[0] == "role" and kinds[-1] == "end"
    assert sorted(kinds[1:-1], key=["reasoning_content", "content", "tool_calls"].index) == kinds[1:-1]
    parts = [choice["delta"]["tool_calls"][0] for choice in choices if "tool_calls" in choice["delta"]]
    assert [(part["index"], part["id"]) for part in parts if "id" in part] == [(0, "toolu_a"), (1, "toolu_b")]
    assert all(part["function"]["arguments"] == "" for part in parts if "id" in part)
    assert len([part for part in parts if part["index"] == 0]) > 3
    assert {choice["finish_reason"] for choice in choices[:-1]} == {None}
    assert choices[-1]["finish_reason"] == "tool_calls"


def test_the_sdk_puts_the_stream_together_to_the_whole_answer(connect):
    client = connect()
    with client.chat.completions.stream(model="weather", messages=OPENING) as stream:
        streamed = stream.get_final_completion().choices[0].message
    whole = ask(client, OPENING).choices[0].message
    assert streamed.content == whole.content
    assert [call.function.arguments for call in streamed.tool_calls] == [
        call.function.arguments for call in whole.tool_calls
    ]


def test_usage_comes_last_and_only_when_asked_for(connect):
    client = connect()
    with_usage = events_of(client, OPENING, stream_options={"include_usage": True})
    assert with_usage[-1]["choices"] == []
    assert with_usage[-1]["usage"] == ask(client, OPENING).usage.model_dump(exclude_none=True)
    assert not any("usage" in event for event in events_of(client, OPENING))


def test_the_same_request_gets_the_same_bytes(connect):
    client = connect()
    assert events_of(client, OPENING) == events_of(client, OPENING)


@pytest.mark.parametrize("results", [[RAIN, UNKNOWN], [UNKNOWN, RAIN]], ids=["in order", "out of order"])
def test_finds_its_place_whatever_the_ids_spelling_and_order(connect, results):
    reply = ask(connect(), [*OPENING, CALLS, *results])
    assert reply.choices[0].message.content == "Rain in Zürich; Oslo is unknown."
    assert reply.choices[0].finish_reason == "stop"


def test_text_in_parts_counts_as_text(connect):
    parts = [{"type": "text", "text": "Compare Zürich and "}, {"type": "text", "text": "Oslo\u2028please"}]
    assert ask(connect(), [GREETING, {"role": "user", "content": parts}]).choices[0].message.tool_calls


def test_any_other_model_name_goes_by_the_conversation_alone(connect):
    assert ask(connect(), OPENING, model="gpt-4.1").model == "weather"


def test_recordings_that_part_ways_must_be_named(connect):
    client = connect()
    call = ask(client, STOCK_OPENING, model="stock").choices[0].message.tool_calls[0]
    assert call.id.startswith("call_")
    later = [
        *STOCK_OPENING,
        {"role": "assistant", "content": None, "tool_calls": [called("i", "count", '{"item":"nail"}')]},
        {"role": "tool", "tool_call_id": "i", "content": '{"left":7}'},
    ]
    assert ask(client, later, model="stock").choices[0].message.content == "Seven."
    assert ask(client, later, model="stock#2").choices[0].message.content == "7"
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, later, model="gpt-4.1")
    assert refused.value.code == "conversation_ambiguous"


@pytest.mark.parametrize(
    "messages",
    [
        [SYSTEM, GREETING, {"role": "user", "content": "Something else"}],
        [*OPENING, CALLS, RAIN],
        [*OPENING, CALLS, RAIN, {**UNKNOWN, "content": "Error: other"}],
        [*OPENING, {**CALLS, "tool_calls": CALLS["tool_calls"][:1]}, RAIN],
        STOCK_OPENING,
    ],
    ids=["other words", "a result is missing", "another result", "a call is missing", "another task"],
)
def test_an_unknown_conversation_is_not_found(connect, messages):
    with pytest.raises(openai.NotFoundError) as refused:
        ask(connect(), messages)
    assert refused.value.code == "conversation_not_recorded"
    assert refused.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    "bend",
    [
        {"continue_final_message": True, "add_generation_prompt": False},
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
        {"logprobs": True},
        {"n": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_probe_is_refused(connect, bend, stream):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(connect(), OPENING, stream=stream, extra_body=bend)
    assert refused.value.code == "cannot_probe_a_recording"


def test_a_probe_by_completions_is_refused(connect):
    with pytest.raises(openai.BadRequestError) as refused:
        connect().completions.create(model="weather", prompt="Compare")
    assert refused.value.code == "cannot_probe_a_recording"


@pytest.mark.parametrize("body", [b"{", b'{"model": "weather"}', b'{"model": "weather", "messages": [1]}'])
def test_a_broken_request_is_a_400_in_the_api_s_shape(connect, body):
    answer = httpx.post(f"{connect().base_url}chat/completions", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_calls_that_cannot_be_read_are_a_400(connect):
    broken = {**CALLS, "tool_calls": [called("x", "weather", "{")]}
    with pytest.raises(openai.BadRequestError, match="tool_calls cannot be read"):
        ask(connect(), [*OPENING, broken])


def test_lists_its_recordings(connect):
    assert [model.id for model in connect().models.list()] == ["weather", "stock", "stock#2"]


def test_an_unknown_path_says_what_there_is(connect):
    with pytest.raises(openai.NotFoundError, match="GET /v1/models"):
        connect().embeddings.create(model="weather", input="x")


def test_keeps_its_pace(connect):
    client = connect(Pace(tokens_per_s=200, ttft_ms=100))
    started = time.perf_counter()
    arrived = [time.perf_counter() - started for _ in ask(client, OPENING, stream=True)]
    whole_started = time.perf_counter()
    tokens = ask(client, OPENING).usage.completion_tokens
    expected = 0.1 + tokens / 200
    assert 0.1 <= arrived[0] < 0.1 + expected / 2
    assert expected <= arrived[-1] < expected + 0.3
    assert expected <= time.perf_counter() - whole_started < expected + 0.3


def test_many_clients_at_once_do_not_mix(connect):
    client = connect(Pace(tokens_per_s=2000, ttft_ms=20))
    weather = (OPENING, "weather", "Looking both up.")
    stock = (STOCK_OPENING, "stock", "")

    def text_of(case: tuple[list[dict[str, Any]], str, str]) -> bool:
        chunks = ask(client, case[0], model=case[1], stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == case[2]

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(text_of, [weather, stock] * 24))


def test_a_client_that_leaves_stops_the_model(made):
    ended = threading.Event()
    app = RecordedEndpoint(load(made), Pace(tokens_per_s=1, ttft_ms=0))

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        if scope["type"] == "http":
            ended.set()

    with serving(watched) as url, openai.OpenAI(base_url=url, api_key="none") as client:
        ask(client, OPENING, stream=True).close()
        assert ended.wait(2)
