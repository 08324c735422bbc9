"""Fields that both completion APIs share: several choices, sampling, formats, stops, predictions."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest
from openai import OpenAI

from agentspec.verifier.server.service import Service
from tests.verifier.server.asks import MESSAGES, SHAPE, TOOLS, WEATHER, chunks

ALONE = {"agentspec": {"workspace": "of its own"}}
ASK: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 12}


def test_several_choices_come_of_one_prompt(client: OpenAI) -> None:
    answer = client.chat.completions.create(**ASK, n=3, temperature=1.5, seed=5)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) == 3
    alone = client.chat.completions.create(**ASK, temperature=1.5, seed=6)
    assert alone.choices[0].message.content == answer.choices[1].message.content
    assert answer.usage is not None and alone.usage is not None
    assert answer.usage.prompt_tokens == alone.usage.prompt_tokens
    assert answer.usage.completion_tokens <= 36


def test_streamed_choices_are_told_apart(client: OpenAI) -> None:
    whole = client.chat.completions.create(**ASK, n=2, temperature=1.5, seed=5)
    texts, reasons = ["", ""], {}
    for chunk in client.chat.completions.create(**ASK, n=2, temperature=1.5, seed=5, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                reasons[choice.index] = choice.finish_reason
    assert texts == [choice.message.content for choice in whole.choices]
    assert reasons == {choice.index: choice.finish_reason for choice in whole.choices}


def test_several_choices_may_all_be_calls(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        **{**ASK, "max_tokens": 200}, n=2, tools=TOOLS, tool_choice=WEATHER, temperature=2, seed=1
    )
    for choice in answer.choices:
        assert choice.finish_reason == "tool_calls" and len(choice.message.tool_calls or []) == 1


def test_several_prompts_give_their_choices_in_order(client: OpenAI, service: Service) -> None:
    ask: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 6}
    prompts = ["Plan: a", "You are"]
    answer = client.completions.create(**ask, prompt=prompts, n=2)
    alone = [client.completions.create(**ask, prompt=prompt).choices[0].text for prompt in prompts]
    assert [choice.text for choice in answer.choices] == [alone[0], alone[0], alone[1], alone[1]]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == sum(len(service.text.encode(prompt)) for prompt in prompts)
    ids: Any = [service.text.encode(prompt) for prompt in prompts]
    assert [c.text for c in client.completions.create(**ask, prompt=ids).choices] == alone


def test_logit_bias_decides_and_bans(client: OpenAI, service: Service) -> None:
    (token,) = service.text.encode("a")
    chosen = client.chat.completions.create(**ASK, temperature=0, logit_bias={str(token): 100})
    assert chosen.choices[0].message.content == "a" * 12
    plain = client.completions.create(model="tiny", prompt="Plan", temperature=0, max_tokens=1, logprobs=0)
    assert plain.choices[0].logprobs is not None
    first = service.text.encode(plain.choices[0].text)
    if len(first) == 1:
        banned = client.completions.create(
            model="tiny", prompt="Plan", temperature=0, max_tokens=1, logit_bias={str(first[0]): -100}
        )
        assert banned.choices[0].text != plain.choices[0].text


def test_a_penalty_ends_a_repetition(client: OpenAI, service: Service) -> None:
    (token,) = service.text.encode("a")
    ask = {**ASK, "temperature": 0, "logit_bias": {str(token): 60}, "max_tokens": 40}
    repeated = client.chat.completions.create(**ask).choices[0].message.content
    penalized = client.chat.completions.create(**ask, frequency_penalty=2, presence_penalty=2).choices[0].message
    assert repeated == "a" * 40 and penalized.content != repeated


def test_min_p_of_one_leaves_only_the_likeliest_token(client: OpenAI) -> None:
    greedy = client.chat.completions.create(**ASK, temperature=0).choices[0].message.content
    sampled = client.chat.completions.create(**ASK, temperature=2, extra_body={"min_p": 1.0})
    assert sampled.choices[0].message.content == greedy


def test_a_stop_token_ends_the_answer_before_it(client: OpenAI, service: Service, http: httpx.Client) -> None:
    (token,) = service.text.encode("a")
    body = {**ASK, "temperature": 0, "logit_bias": {str(token): 100}, "stop_token_ids": [token]}
    answer = http.post("/v1/chat/completions", json=body).json()
    assert answer["choices"][0]["message"]["content"] == "" and answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 1


def test_token_ids_are_told_when_asked_for(http: httpx.Client, service: Service) -> None:
    body = {"prompt": "Plan", "temperature": 0, "max_tokens": 9, "return_token_ids": True}
    whole = http.post("/v1/completions", json=body).json()["choices"][0]
    assert len(whole["token_ids"]) == 9
    spelled = b"".join(map(service.text.piece, whole["token_ids"])).decode(errors="replace")
    assert spelled == whole["text"]
    streamed = chunks(http.post("/v1/completions", json={**body, "stream": True}).text)
    assert [i for chunk in streamed for i in chunk["choices"][0]["token_ids"]] == whole["token_ids"]


def test_a_schema_shapes_the_answer(client: OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SHAPE, "strict": True}}
    answer = client.chat.completions.create(**{**ASK, "max_tokens": 60}, temperature=0, response_format=form)
    jsonschema.validate(json.loads(answer.choices[0].message.content or ""), SHAPE)
    assert answer.choices[0].finish_reason == "stop"


def test_a_schema_beside_tools_gives_the_one_or_the_other(client: OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SHAPE}}
    for seed in range(4):
        answer = client.chat.completions.create(
            **{**ASK, "max_tokens": 80}, temperature=2, seed=seed, response_format=form, tools=TOOLS
        )
        message, reason = answer.choices[0].message, answer.choices[0].finish_reason
        if reason == "tool_calls":
            assert message.content is None
        elif reason == "stop":
            jsonschema.validate(json.loads(message.content or ""), SHAPE)


def test_any_object_is_an_object(http: httpx.Client) -> None:
    body = {**ASK, "temperature": 0, "response_format": {"type": "json_object"}, "max_tokens": 3}
    assert http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"].startswith("{")


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [({"choice": ["yes", "no"]}, ("yes", "no")), ({"regex": "[ab]{3}"}, None), ({"json": SHAPE}, None)],
)
def test_vllms_structured_outputs_are_understood(http: httpx.Client, wanted: Any, fits: Any) -> None:
    body = {**ASK, "temperature": 0, "structured_outputs": wanted, "max_tokens": 60}
    text = http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    if "json" in wanted:
        jsonschema.validate(json.loads(text), SHAPE)
    else:
        assert text in fits if fits else len(text) == 3 and set(text) <= {"a", "b"}


def test_a_prediction_changes_nothing_but_the_count(client: OpenAI, service: Service) -> None:
    (token,) = service.text.encode("a")
    ask: dict[str, Any] = {**ASK, "max_tokens": 40, "temperature": 0, "logit_bias": {str(token): 100}}
    said, accepted = "a" * 40, []
    for content in (said, [{"type": "text", "text": said}], "something else altogether"):
        prediction: Any = {"type": "content", "content": content}
        answer = client.chat.completions.create(**ASK | ask, prediction=prediction, extra_body=ALONE)
        assert answer.choices[0].message.content == said
        assert answer.usage is not None and answer.usage.completion_tokens_details is not None
        details = answer.usage.completion_tokens_details
        assert details.rejected_prediction_tokens is not None
        accepted.append(details.accepted_prediction_tokens or 0)
    assert min(accepted[:2]) > 0


def test_lossy_acceptance_is_labelled(http: httpx.Client) -> None:
    for lossy in ({"lossy": "typical"}, {}):
        body = {**ASK, "temperature": 0, "agentspec": lossy}
        whole = http.post("/v1/chat/completions", json=body).json()
        last = list(chunks(http.post("/v1/chat/completions", json={**body, "stream": True}).text))[-1]
        for answer in (whole, last):
            assert answer.get("agentspec", {}).get("lossy", False) is bool(lossy)


def test_speculation_can_be_refused(http: httpx.Client) -> None:
    answers = [
        http.post("/v1/chat/completions", json={**ASK, "temperature": 0, "agentspec": {"speculate": wanted}}).json()
        for wanted in (True, False)
    ]
    assert answers[0]["choices"] == answers[1]["choices"]
    assert answers[1]["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] == 0
