"""`/v1/responses` over a real socket, through the openai SDK and byte by byte."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest
from openai import BadRequestError, OpenAI

from tests.verifier.server.asks import FLAT_TOOLS, PARAMETERS, SHAPE, chunks

ASK: dict[str, Any] = {"model": "tiny", "input": "What is the weather?", "temperature": 0}
NAMED: Any = {"type": "function", "name": "get_weather"}
CALL = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Rom", "days": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "rain"}


def test_text_is_the_same_as_of_a_chat(client: OpenAI) -> None:
    answer = client.responses.create(**ASK, instructions="Be brief.", max_output_tokens=20)
    messages: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASK["input"]}]
    chat = client.chat.completions.create(model="tiny", messages=messages, temperature=0, max_tokens=20)
    assert answer.output_text == chat.choices[0].message.content
    assert answer.usage is not None and chat.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (
        chat.usage.prompt_tokens,
        chat.usage.completion_tokens,
    )
    assert chat.usage.prompt_tokens_details is not None
    assert chat.usage.prompt_tokens_details.cached_tokens == chat.usage.prompt_tokens - 1
    cut = chat.choices[0].finish_reason == "length"
    assert answer.status == ("incomplete" if cut else "completed")
    assert (answer.incomplete_details is not None) is cut
    assert answer.instructions == "Be brief." and answer.id.startswith("resp_")


def test_a_call_is_an_item_with_valid_arguments(client: OpenAI) -> None:
    answer = client.responses.create(**ASK, tools=FLAT_TOOLS, tool_choice=NAMED, max_output_tokens=200)
    (call,) = answer.output
    assert call.type == "function_call" and call.name == "get_weather" and call.call_id.startswith("call_")
    jsonschema.validate(json.loads(call.arguments), PARAMETERS)
    assert answer.status == "completed" and answer.output_text == ""


def test_a_format_shapes_the_text(client: OpenAI) -> None:
    text: Any = {"format": {"type": "json_schema", "name": "weather", "schema": SHAPE, "strict": True}}
    answer = client.responses.create(**ASK, text=text, max_output_tokens=60)
    jsonschema.validate(json.loads(answer.output_text), SHAPE)


def events_of(http: httpx.Client, **body: Any) -> list[Any]:
    response = http.post("/v1/responses", json={**ASK, **body, "stream": True})
    assert "[DONE]" not in response.text
    names = [line[7:] for line in response.text.split("\n") if line.startswith("event: ")]
    events = list(chunks(response.text))
    assert [event["type"] for event in events] == names
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def test_the_events_of_a_text_come_in_the_order_of_the_api(http: httpx.Client) -> None:
    events = events_of(http, max_output_tokens=20)
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    rest = [kind for kind in kinds[4:] if kind != "output_text.delta"]
    last = events[-1]["response"]
    assert rest == ["output_text.done", "content_part.done", "output_item.done", last["status"]]
    deltas = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert deltas == events[-4]["text"] == last["output"][0]["content"][0]["text"]
    assert events[2]["item"]["content"] == [] and events[2]["item"]["status"] == "in_progress"
    assert events[0]["response"]["output"] == [] and events[0]["response"]["status"] == "in_progress"
    assert {event["item_id"] for event in events if "item_id" in event} == {last["output"][0]["id"]}
    whole = http.post("/v1/responses", json={**ASK, "max_output_tokens": 20}).json()
    assert (
        whole["output"][0]["content"] == last["output"][0]["content"] and whole["usage"].keys() == last["usage"].keys()
    )


def test_the_events_of_a_call_carry_its_arguments(http: httpx.Client) -> None:
    events = events_of(http, tools=FLAT_TOOLS, tool_choice=NAMED, max_output_tokens=200)
    added = next(event for event in events if event["type"] == "response.output_item.added")
    assert added["item"]["name"] == "get_weather" and added["item"]["arguments"] == ""
    arguments = "".join(e["delta"] for e in events if e["type"] == "response.function_call_arguments.delta")
    done = next(event for event in events if event["type"] == "response.function_call_arguments.done")
    assert done["arguments"] == arguments == events[-1]["response"]["output"][0]["arguments"]
    jsonschema.validate(json.loads(arguments), PARAMETERS)
    assert events[-2]["item"]["status"] == "completed"


def test_the_sdk_assembles_the_stream(client: OpenAI) -> None:
    with client.responses.stream(**ASK, max_output_tokens=12) as stream:
        final = None
        for event in stream:
            if event.type in ("response.completed", "response.incomplete"):
                final = event.response
    assert final is not None
    assert final.output_text == client.responses.create(**ASK, max_output_tokens=12).output_text


def test_a_history_of_items_is_read(client: OpenAI) -> None:
    items: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "What is the weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Look.", "annotations": []}],
        },
        CALL,
        OUTPUT,
    ]
    arguments = json.loads(CALL["arguments"])
    messages: Any = [
        {"role": "user", "content": "What is the weather?"},
        {
            "role": "assistant",
            "content": "Look.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": json.dumps(arguments)},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]
    answer = client.responses.create(**{**ASK, "input": items}, max_output_tokens=8)
    chat = client.chat.completions.create(model="tiny", messages=messages, temperature=0, max_tokens=8)
    assert answer.output_text == chat.choices[0].message.content


def test_log_probabilities_come_when_included(client: OpenAI) -> None:
    answer = client.responses.create(
        **ASK, max_output_tokens=6, include=["message.output_text.logprobs"], top_logprobs=2
    )
    part: Any = answer.output[0]
    told = part.content[0].logprobs
    assert len(told) == 6 and all(len(token.top_logprobs) == 2 for token in told)


@pytest.mark.parametrize(
    "field",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"store": True},
        {"background": True},
        {"prompt": {"id": "p"}},
        {"tools": [{"type": "web_search"}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": []},
        {"text": {"format": {"type": "yaml"}}},
    ],
)
def test_what_is_not_here_is_refused_with_what_to_do(client: OpenAI, field: Any) -> None:
    with pytest.raises(BadRequestError) as caught:
        client.responses.create(**{**ASK, **field})
    body: Any = caught.value.body
    assert "`" in body["message"] and body["type"] == "invalid_request_error"


def test_defaults_that_clients_write_out_are_taken(client: OpenAI) -> None:
    answer = client.responses.create(
        **ASK, max_output_tokens=2, store=False, background=False, metadata={"a": "b"}, truncation="disabled", user="u"
    )
    assert answer.metadata == {"a": "b"}
