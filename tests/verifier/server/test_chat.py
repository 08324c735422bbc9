"""The real server over a real socket, with the tiny random model."""

from __future__ import annotations

import json
import math
from typing import Any

import anyio
import httpx
import jsonschema
import pytest
from openai import APIStatusError, NotFoundError, OpenAI

from agentspec.errors import ConfigError
from agentspec.verifier import VerifierConfig, serve
from agentspec.verifier.server.request import chat_job
from agentspec.verifier.server.service import Service
from tests.verifier.server.asks import MESSAGES, PARAMETERS, TOOLS, WEATHER


async def settled(service: Service) -> None:
    with anyio.fail_after(10):
        while service.engine.running:  # noqa: ASYNC110 - the engine's thread has no event to await
            await anyio.sleep(0.002)


def test_streamed_and_whole_answers_are_the_same(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=0, max_tokens=20)
    chunks = list(
        client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            temperature=0,
            max_tokens=20,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].usage is not None and whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    details = chunks[-1].usage.prompt_tokens_details
    assert details is not None and details.cached_tokens == whole.usage.prompt_tokens - 1
    assert len({c.id for c in chunks}) == 1


def test_a_named_tool_is_called_with_valid_arguments(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, tools=TOOLS, tool_choice=WEATHER, temperature=0, max_tokens=200
    ).choices[0]
    assert answer.finish_reason == "tool_calls" and answer.message.content is None
    (call,) = answer.message.tool_calls or []
    assert call.type == "function" and call.function.name == "get_weather" and call.id.startswith("call_")
    jsonschema.validate(json.loads(call.function.arguments), PARAMETERS)


def test_tool_calls_stream_name_first_then_arguments(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="tiny", messages=MESSAGES, tools=TOOLS, tool_choice=WEATHER, temperature=0, max_tokens=200, stream=True
    )
    deltas = [c.choices[0] for c in stream]
    parts = [call for d in deltas for call in d.delta.tool_calls or []]
    assert parts[0].id and parts[0].type == "function" and parts[0].function and parts[0].function.name == "get_weather"
    assert all(p.index == 0 and p.id is None for p in parts[1:])
    arguments = "".join((p.function and p.function.arguments) or "" for p in parts)
    jsonschema.validate(json.loads(arguments), PARAMETERS)
    assert deltas[-1].finish_reason == "tool_calls"


@pytest.mark.parametrize("choice", ["auto", "required", WEATHER])
def test_a_continued_message_ends_with_its_call(http: httpx.Client, choice: Any) -> None:
    opened = 'Plan: I look it up.\n{"name": "'
    body = {
        "model": "tiny",
        "messages": [*MESSAGES, {"role": "assistant", "content": opened}],
        "tools": TOOLS,
        "tool_choice": choice,
        "continue_final_message": True,
        "add_generation_prompt": False,
        "temperature": 0,
        "max_completion_tokens": 200,
        "logprobs": True,
        "priority": 10,
    }
    answer = http.post("/v1/chat/completions", json=body).json()
    choice_ = answer["choices"][0]
    assert choice_["finish_reason"] == "stop" and not choice_["message"].get("tool_calls")
    call = json.loads('{"name": "' + choice_["message"]["content"])
    assert call["name"] in ("get_weather", "ping")
    content = choice_["logprobs"]["content"]
    assert "".join(t["token"] for t in content) == choice_["message"]["content"]
    assert len(content) == answer["usage"]["completion_tokens"]
    assert all(t["logprob"] <= 0 and t["top_logprobs"] == [] for t in content)
    lines = http.post("/v1/chat/completions", json={**body, "stream": True}).text.split("\n\n")
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == choice_["message"]["content"]


def test_a_continued_message_without_tools_is_free(http: httpx.Client) -> None:
    body = {
        "messages": [*MESSAGES, {"role": "assistant", "content": "Once upon "}],
        "tools": TOOLS,
        "tool_choice": "none",
        "continue_final_message": True,
        "temperature": 0,
        "max_tokens": 5,
    }
    assert http.post("/v1/chat/completions", json=body).json()["usage"]["completion_tokens"] <= 5


def test_a_probe_shares_its_turns_prompt(http: httpx.Client) -> None:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Share this. " * 20}],
        "tools": TOOLS,
        "temperature": 0,
    }
    turn = http.post("/v1/chat/completions", json={**body, "max_tokens": 4}).json()["usage"]
    probe = {**body, "messages": [*body["messages"], {"role": "assistant", "content": '{"name": "'}]}
    probe |= {"continue_final_message": True, "max_tokens": 100}
    usage = http.post("/v1/chat/completions", json=probe).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= turn["prompt_tokens"]


def test_history_with_tool_calls_renders_like_what_the_model_wrote(service: Service) -> None:
    arguments = '{"city": "Paris", "days": 2}'
    call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    job = chat_job({"messages": [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [call]}]})
    rendered = service.text.tokenizer.decode(service.text.render(job.messages, job.tools))
    assert '{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}' in rendered


def test_logprobs_have_openais_shape(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, temperature=0, max_tokens=8, logprobs=True, top_logprobs=3
    ).choices[0]
    assert answer.logprobs is not None and answer.logprobs.content is not None
    raw = b"".join(bytes(t.bytes or []) for t in answer.logprobs.content)
    assert raw.decode(errors="replace") == answer.message.content
    for token in answer.logprobs.content:
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].logprob == pytest.approx(token.logprob)
        assert sum(math.exp(t.logprob) for t in token.top_logprobs) <= 1 + 1e-6


def test_streamed_logprobs_cover_every_token(http: httpx.Client) -> None:
    body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 30, "logprobs": True}
    whole = http.post("/v1/chat/completions", json=body).json()["choices"][0]["logprobs"]["content"]
    lines = http.post("/v1/chat/completions", json={**body, "stream": True}).text.split("\n\n")
    chunks = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]
    streamed = [t for c in chunks if c["logprobs"] for t in c["logprobs"]["content"]]
    assert [t["token"] for t in streamed] == [t["token"] for t in whole]


def test_plain_completions_take_text_or_ids(client: OpenAI, service: Service) -> None:
    ids = service.text.encode("Plan: I look")
    by_text = client.completions.create(model="tiny", prompt="Plan: I look", temperature=0, max_tokens=9, logprobs=2)
    by_ids = client.completions.create(model="tiny", prompt=ids, temperature=0, max_tokens=9)
    assert by_text.choices[0].text == by_ids.choices[0].text
    logprobs = by_text.choices[0].logprobs
    assert logprobs is not None and logprobs.tokens is not None and logprobs.token_logprobs is not None
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == 9
    stream = client.completions.create(model="tiny", prompt=ids, temperature=0, max_tokens=9, stream=True)
    assert "".join(c.choices[0].text for c in stream) == by_ids.choices[0].text


def test_stop_strings_end_the_text_before_them(client: OpenAI) -> None:
    ask: dict[str, Any] = {"model": "tiny", "prompt": "Plan", "temperature": 0, "max_tokens": 40}
    full = client.completions.create(**ask).choices[0].text
    stop = full[len(full) // 2 : len(full) // 2 + 2]
    cut = client.completions.create(**ask, stop=[stop]).choices[0]
    assert cut.text == full[: full.index(stop)] and cut.finish_reason == "stop"


def test_streams_hold_no_broken_characters_but_those_the_model_made(http: httpx.Client) -> None:
    body = {"prompt": "grün 你好", "temperature": 0, "max_tokens": 120}
    whole = http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    lines = http.post("/v1/completions", json={**body, "stream": True}).content.split(b"\n\n")
    parts = [json.loads(line[6:])["choices"][0]["text"] for line in lines if line.startswith(b"data: {")]
    assert "".join(parts) == whole


async def leave_early(base_url: str, service: Service, *, stream: bool, after_first: bool) -> None:
    body = {"prompt": "go on " * (1 if after_first else 200), "max_tokens": 1800, "temperature": 2.0, "stream": stream}
    async with httpx.AsyncClient(base_url=base_url, trust_env=False, timeout=30) as http:
        with anyio.move_on_after(5) as scope:
            async with http.stream("POST", "/v1/completions", json=body) as response:
                if after_first:
                    async for _ in response.aiter_bytes():
                        break
                scope.cancel()
    await settled(service)


@pytest.mark.parametrize("after_first", [True, False])
def test_a_client_that_leaves_a_stream_frees_its_sequence(base_url: str, service: Service, after_first: bool) -> None:
    anyio.run(lambda: leave_early(base_url, service, stream=True, after_first=after_first))


def test_a_client_that_leaves_a_whole_answer_frees_its_sequence(base_url: str, service: Service) -> None:
    async def leave() -> None:
        body = {"prompt": "go on", "max_tokens": 1900, "temperature": 2.0}
        async with (
            httpx.AsyncClient(base_url=base_url, trust_env=False, timeout=30) as http,
            anyio.create_task_group() as tg,
        ):
            tg.start_soon(lambda: http.post("/v1/completions", json=body))
            while not service.engine.running:  # noqa: ASYNC110 - the engine's thread has no event to await
                await anyio.sleep(0.001)
            tg.cancel_scope.cancel()
        before = service.engine.stats().steps
        await settled(service)
        assert service.engine.stats().steps - before < 500

    anyio.run(leave)


def test_errors_have_openais_shape_and_stable_codes(http: httpx.Client) -> None:
    def error(path: str, body: Any) -> tuple[int, str, str]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = http.post(path, content=content)
        found = response.json()["error"]
        assert set(found) == {"message", "type", "param", "code"}
        return response.status_code, found["code"], found["message"]

    chat = "/v1/chat/completions"
    status, code, message = error(chat, {"model": "other", "messages": MESSAGES})
    assert (status, code) == (404, "model_not_found") and "tiny" in message
    assert error(chat, b"{nope")[:2] == (400, "invalid_json")
    assert error(chat, b"[]")[:2] == (400, "invalid_json")
    long = [{"role": "user", "content": "x y z " * 2000}]
    assert error(chat, {"messages": long})[:2] == (400, "context_length_exceeded")
    for bad in (
        {},
        {"messages": MESSAGES, "temperature": "hot"},
        {"messages": MESSAGES, "n": 0},
        {"messages": MESSAGES, "n": 65},
        {"messages": MESSAGES, "logit_bias": {"x": 1}},
        {"messages": MESSAGES, "logit_bias": {"9999999": 1}},
        {"messages": MESSAGES, "logit_bias": [1]},
        {"messages": MESSAGES, "stop_token_ids": ["a"]},
        {"messages": MESSAGES, "repetition_penalty": 0},
        {"messages": MESSAGES, "prediction": {"type": "nothing"}},
        {"messages": MESSAGES, "response_format": {"type": "yaml"}},
        {"messages": MESSAGES, "response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        {"messages": MESSAGES, "agentspec": {"lossy": "always"}},
        {"messages": MESSAGES, "agentspec": "fast"},
        {"messages": MESSAGES, "stop": 3},
        {"messages": MESSAGES, "tools": [{"type": "function"}]},
        {"messages": MESSAGES, "tools": TOOLS, "tool_choice": {"function": {"name": "nope"}}},
        {"messages": MESSAGES, "tool_choice": "required"},
        {"messages": MESSAGES, "continue_final_message": True},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
    ):
        assert error(chat, bad)[0] == 400
    for refused in (
        {"prompt": ""},
        {"prompt": "a", "echo": True},
        {"prompt": "a", "suffix": "b"},
        {"prompt": ["a", 3]},
    ):
        assert error("/v1/completions", refused)[0] == 400
    assert error("/v1/completions", {"prompt": [10**9]})[0] == 400
    assert error("/v1/nope", {})[:2] == (404, "unknown_path")


def test_a_continuation_that_fits_no_tool_is_refused_or_free(http: httpx.Client) -> None:
    body = {
        "messages": [*MESSAGES, {"role": "assistant", "content": '{"name": "unknown'}],
        "tools": TOOLS,
        "continue_final_message": True,
        "max_tokens": 3,
    }
    assert http.post("/v1/chat/completions", json=body).status_code == 200
    refused = http.post("/v1/chat/completions", json={**body, "tool_choice": "required"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_continuation")


def test_the_openai_client_sees_typed_errors(client: OpenAI) -> None:
    with pytest.raises(NotFoundError):
        client.chat.completions.create(model="other", messages=MESSAGES)
    with pytest.raises(APIStatusError):
        client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=9)


def test_models_and_health(client: OpenAI, http: httpx.Client) -> None:
    assert [m.id for m in client.models.list()] == ["tiny"]
    assert http.get("/health").json()["status"] == "ok"


def test_a_taken_port_is_said_before_the_model_is_loaded(base_url: str) -> None:
    port = int(base_url.rsplit(":", 1)[1])
    with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
        serve(VerifierConfig(model="there/is-no-such-model", port=port))


def test_unknown_fields_are_ignored(http: httpx.Client) -> None:
    body = {"messages": MESSAGES, "max_tokens": 1, "cache_salt": "x", "return_token_ids": True, "request_id": "probe-1"}
    assert http.post("/v1/chat/completions", json=body).status_code == 200
