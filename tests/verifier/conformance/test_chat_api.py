"""The chat API as agents use it, on any engine. What only some engines have is a flag of `FACTS`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest
from openai import APIStatusError, OpenAI

from agentspec.config import Engine
from agentspec.verifier.adapters.asking import root_of
from tests.verifier.conformance.conftest import RunningEngine

TOKENS = 16
ASKED: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rom"]}, "days": {"type": "integer", "enum": [1, 2]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER: Any = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}
PING: Any = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}
NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}
SHAPE = {
    "type": "object",
    "properties": {"sky": {"type": "string", "enum": ["clear", "grey"]}, "wet": {"type": "boolean"}},
    "required": ["sky", "wet"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Facts:
    """What an engine has beyond what all have.

    Attributes:
        cached_tokens: `usage` tells how much of the prompt was not computed again.
        predictions: `prediction` is a draft, and `usage` counts it.
        responses: `/v1/responses`.
        other_model: a request for another model is refused.
    """

    cached_tokens: bool = True
    predictions: bool = False
    responses: bool = False
    other_model: bool = True


FACTS = {
    Engine.AGENTSPEC: Facts(predictions=True, responses=True),
    Engine.VLLM: Facts(responses=True),
    Engine.SGLANG: Facts(other_model=False),
}


@pytest.fixture(scope="module")
def client(engine: RunningEngine) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{root_of(engine.url)}/v1", api_key="none", max_retries=0, timeout=240) as client:
        yield client


@pytest.fixture
def ask(engine: RunningEngine) -> dict[str, Any]:
    return {"model": engine.can.model, "messages": ASKED, "temperature": 0, "max_tokens": TOKENS}


@pytest.fixture
def facts(engine: RunningEngine) -> Facts:
    return FACTS[engine.can.engine]


def test_a_stream_says_the_same_as_the_whole_answer(client: OpenAI, ask: dict[str, Any]) -> None:
    whole = client.chat.completions.create(**ask)
    chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason] == [
        whole.choices[0].finish_reason
    ]
    assert chunks[-1].choices == [] and chunks[-1].usage is not None and whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens <= TOKENS
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_prompt_that_was_seen_is_not_computed_again(client: OpenAI, ask: dict[str, Any], facts: Facts) -> None:
    if not facts.cached_tokens:
        pytest.skip("it does not tell")
    long: Any = [{"role": "user", "content": "The shop has many shelves, and each has a number. " * 30}]
    for _ in range(2):
        usage = client.chat.completions.create(**{**ask, "messages": long, "max_tokens": 1}).usage
    assert usage is not None and usage.prompt_tokens_details is not None
    assert (usage.prompt_tokens_details.cached_tokens or 0) >= 0.8 * usage.prompt_tokens


@pytest.mark.parametrize("streamed", [False, True])
def test_a_named_tool_is_called_with_valid_arguments(client: OpenAI, ask: dict[str, Any], streamed: bool) -> None:
    forced: dict[str, Any] = {**ask, "tools": [WEATHER, PING], "tool_choice": NAMED, "max_tokens": 60}
    if not streamed:
        (call,) = client.chat.completions.create(**forced).choices[0].message.tool_calls or []
        assert call.type == "function" and call.id
        name, arguments = call.function.name, call.function.arguments
    else:
        deltas = [c.delta for chunk in client.chat.completions.create(**forced, stream=True) for c in chunk.choices]
        parts = [part for delta in deltas for part in delta.tool_calls or []]
        assert {part.index for part in parts} == {0} and parts[0].id
        name = "".join((part.function and part.function.name) or "" for part in parts)
        arguments = "".join((part.function and part.function.arguments) or "" for part in parts)
    assert name == "get_weather"
    jsonschema.validate(json.loads(arguments), PARAMETERS)


def test_a_turn_after_a_tools_result_is_answered(client: OpenAI, ask: dict[str, Any]) -> None:
    forced = client.chat.completions.create(**{**ask, "max_tokens": 60}, tools=[WEATHER], tool_choice=NAMED)
    message = forced.choices[0].message
    (call,) = message.tool_calls or []
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    history = [*ASKED, message.model_dump(exclude_none=True), result]
    answer = client.chat.completions.create(**{**ask, "messages": history}, tools=[WEATHER])
    assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")
    assert answer.usage is not None and forced.usage is not None
    assert answer.usage.prompt_tokens > forced.usage.prompt_tokens


def test_a_schema_shapes_the_answer(client: OpenAI, ask: dict[str, Any]) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SHAPE, "strict": True}}
    answer = client.chat.completions.create(**{**ask, "max_tokens": 60}, response_format=form).choices[0]
    jsonschema.validate(json.loads(answer.message.content or ""), SHAPE)


def test_log_probabilities_cover_every_token(client: OpenAI, ask: dict[str, Any]) -> None:
    answer = client.chat.completions.create(**{**ask, "max_tokens": 4}, logprobs=True, top_logprobs=2)
    told = answer.choices[0].logprobs
    assert answer.usage is not None and told is not None and told.content is not None
    assert len(told.content) == answer.usage.completion_tokens
    for token in told.content:
        assert token.logprob <= 0 and len(token.top_logprobs) >= 2
        assert token.top_logprobs[0].logprob == pytest.approx(token.logprob, abs=1e-4)


def test_several_choices_have_their_own_seeds(client: OpenAI, ask: dict[str, Any]) -> None:
    hot = {**ask, "temperature": 1.5, "seed": 11, "max_tokens": 8}
    first, again = (client.chat.completions.create(**hot, n=2) for _ in range(2))
    texts = [choice.message.content for choice in first.choices]
    assert sorted(choice.index for choice in first.choices) == [0, 1]
    assert texts == [choice.message.content for choice in again.choices]
    assert texts[0] != texts[1]


def test_a_stop_string_ends_the_answer_before_it(client: OpenAI, ask: dict[str, Any]) -> None:
    full = client.chat.completions.create(**ask).choices[0].message.content or ""
    stop = full[len(full) // 2 : len(full) // 2 + 2]
    cut = client.chat.completions.create(**ask, stop=[stop]).choices[0]
    assert cut.finish_reason == "stop" and cut.message.content == full[: full.index(stop)]


def test_a_banned_token_does_not_come(client: OpenAI, ask: dict[str, Any]) -> None:
    ask["max_tokens"] = 1
    plain = client.chat.completions.create(**ask, logprobs=True, top_logprobs=1, extra_body={"return_token_ids": True})
    ids = (plain.choices[0].model_extra or {}).get("token_ids")
    if not ids:
        pytest.skip("it does not tell the ids of tokens")
    banned = client.chat.completions.create(**ask, logit_bias={str(ids[0]): -100})
    assert banned.choices[0].message.content != plain.choices[0].message.content


def test_a_prediction_changes_no_answer(client: OpenAI, ask: dict[str, Any], facts: Facts) -> None:
    plain = client.chat.completions.create(**ask)
    said = plain.choices[0].message.content or ""
    predicted: Any = {"type": "content", "content": said}
    answer = client.chat.completions.create(**ask, prediction=predicted)
    assert answer.choices[0].message.content == said
    if facts.predictions:
        assert answer.usage is not None and answer.usage.completion_tokens_details is not None
        assert answer.usage.completion_tokens_details.rejected_prediction_tokens is not None


@pytest.mark.parametrize(
    "wrong",
    [{"messages": []}, {"temperature": "hot"}, {"tools": [{"type": "function"}]}, {"max_tokens": -1}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_is_wrong_is_told_in_the_apis_shape(client: OpenAI, ask: dict[str, Any], wrong: Any) -> None:
    with pytest.raises(APIStatusError) as caught:
        client.chat.completions.create(**{**ask, **wrong})
    assert 400 <= caught.value.status_code < 500


def test_another_model_is_refused(client: OpenAI, ask: dict[str, Any], facts: Facts) -> None:
    if not facts.other_model:
        pytest.skip("it answers to any name")
    with pytest.raises(APIStatusError) as caught:
        client.chat.completions.create(**{**ask, "model": "none-of-this-name"})
    assert caught.value.status_code == 404


def test_a_response_says_what_the_chat_says(
    client: OpenAI, engine: RunningEngine, ask: dict[str, Any], facts: Facts
) -> None:
    if not facts.responses:
        pytest.skip("it has no /v1/responses")
    chat = client.chat.completions.create(**ask).choices[0].message.content
    question = ASKED[0]["content"]
    answer = client.responses.create(
        model=engine.can.model, input=question, temperature=0, max_output_tokens=TOKENS, store=False
    )
    assert answer.output_text == chat
    events = list(
        client.responses.create(
            model=engine.can.model, input=question, temperature=0, max_output_tokens=TOKENS, store=False, stream=True
        )
    )
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == chat
    assert events[-1].type in ("response.completed", "response.incomplete")


def test_the_models_are_listed(client: OpenAI, engine: RunningEngine) -> None:
    assert engine.can.model in [model.id for model in client.models.list()]
