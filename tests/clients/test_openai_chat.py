"""The openai SDK's Chat Completions give the same through the proxy as without it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.clients import run_sdks
from tests.clients.script import BreakingOff, Failing, Text, Thinking
from tests.clients.shop import ANSWER, CHAT_TOOLS, LOOP, QUESTION, RESULTS, THOUGHTFUL
from tests.clients.ways import Both, Way, error_of

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": QUESTION}]}
STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}

pytestmark = pytest.mark.filterwarnings("ignore:.*httpx.*:DeprecationWarning")


def asked(way: Way, **more: Any) -> list[Any]:
    """What `create` gives: a message, or all chunks of a stream."""
    with way.openai() as client:
        answer: Any = client.chat.completions.create(**ASK, **more)
        return [part.model_dump() for part in answer] if more.get("stream") else [answer.model_dump()]


async def asked_async(way: Way, **more: Any) -> list[Any]:
    async with way.openai_async() as client:
        answer: Any = await client.chat.completions.create(**ASK, **more)
        return [part.model_dump() async for part in answer] if more.get("stream") else [answer.model_dump()]


@pytest.mark.parametrize("streamed", [{}, STREAMED, {"stream": True}], ids=["whole", "streamed", "without_usage"])
@pytest.mark.parametrize("client", ["sync", "async"])
def test_text_tool_calls_and_usage_are_the_same(both: Both, client: str, streamed: dict[str, Any]) -> None:
    options = {"tools": CHAT_TOOLS, "parallel_tool_calls": True, "logprobs": False, **streamed}

    def ask(way: Way) -> list[Any]:
        return asked(way, **options) if client == "sync" else asyncio.run(asked_async(way, **options))

    got = both.same(ask, THOUGHTFUL)
    text = json.dumps(got)
    assert "reasoning_content" in text
    assert "call_0_1" in text
    assert ('"cached_tokens": 16' in text) == (streamed != {"stream": True})


@pytest.mark.parametrize("cut", [1, 3, 50])
def test_a_stream_that_arrives_in_shreds_is_the_same(both: Both, cut: int) -> None:
    got = both.same(lambda way: asked(way, **STREAMED), [Text(ANSWER)], cut=cut)
    assert "".join(part["choices"][0]["delta"]["content"] or "" for part in got[:-2]) == ANSWER


def test_the_helper_for_streams_sees_the_same_events(both: Both) -> None:
    def events(way: Way) -> list[Any]:
        with way.openai() as client, client.chat.completions.stream(**ASK, tools=CHAT_TOOLS) as stream:
            seen = [event.model_dump() for event in stream]
            return [*seen, stream.get_final_completion().model_dump()]

    got = both.same(events, THOUGHTFUL)
    assert "tool_calls.function.arguments.done" in {event.get("type") for event in got}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_loop_of_your_own_ends_the_same(both: Both, streamed: bool) -> None:
    got = both.same(lambda way: run_sdks.chat(way, streamed), *LOOP)
    assert got[-1]["content"] == ANSWER
    assert [message["content"] for message in got if message["role"] == "tool"] == RESULTS


def test_raw_responses_carry_the_endpoints_headers(both: Both) -> None:
    def raw(way: Way) -> Any:
        with way.openai() as client:
            response = client.chat.completions.with_raw_response.create(**ASK)
            return response.request_id, response.status_code, list(response.headers.multi_items()), response.text

    request_id, status, headers, _ = both.same(raw, [Text(ANSWER)])
    assert (request_id, status) == ("req_openai_0", 200)
    assert {"x-ratelimit-limit-requests", "x-ratelimit-reset-tokens", "openai-processing-ms"} <= {k for k, _ in headers}
    assert [value for name, value in headers if name == "set-cookie"][1:] == ["_cfuvid=Zz2; path=/; HttpOnly"]


def test_a_streamed_raw_response_carries_the_endpoints_headers(both: Both) -> None:
    def raw(way: Way) -> Any:
        create = {**ASK, **STREAMED}
        with way.openai() as client, client.chat.completions.with_streaming_response.create(**create) as response:
            headers = sorted(pair for pair in response.headers.items() if pair[0] != "transfer-encoding")
            return headers, list(response.iter_lines())

    headers, lines = both.same(raw, [Text("Hi.")])
    assert ("x-request-id", "req_openai_0") in headers
    assert lines[-2:] == ["data: [DONE]", ""]


def test_cookies_headers_and_odd_fields_of_your_own_reach_the_endpoint(both: Both) -> None:
    def twice(way: Way) -> None:
        options = {
            "extra_headers": {"X-Team": "shop, a", "OpenAI-Beta": "x=v1"},
            "extra_query": {"api-version": "2025-01", "q": "a/b c"},
            "extra_body": {"top_k": 5, "x": 1.0, "nested": {"b": None, "a": "é\u2028"}},
        }
        with way.openai(organization="org", project="proj") as client:
            for _ in range(2):
                client.chat.completions.create(**ASK, **options)

    both.same(twice, [Text("One.")], [Text("Two.")])
    last = both.upstream.asked[-1]
    assert last.header("cookie") == ["__cf_bm=Zz1; _cfuvid=Zz2"]
    assert last.header("x-team") == ["shop, a"]
    assert last.path == "/v1/chat/completions?api-version=2025-01&q=a%2Fb+c"


def test_the_list_of_models_is_the_same(both: Both) -> None:
    def models(way: Way) -> Any:
        with way.openai() as client:
            return [model.model_dump() for model in client.models.list()]

    assert both.same(models)[0]["id"] == "scripted-1"


@pytest.mark.parametrize("end", [Failing(), BreakingOff()], ids=["error_event", "broken_off"])
@pytest.mark.parametrize("client", ["sync", "async"])
def test_a_stream_that_fails_midway_fails_the_same(both: Both, client: str, end: Any) -> None:
    def ask(way: Way) -> Any:
        if client == "sync":
            return error_of(lambda: asked(way, **STREAMED))
        return error_of(lambda: asyncio.run(asked_async(way, **STREAMED)))

    got = both.same(ask, [Thinking("Hm."), Text("Half an ans"), end])
    assert got["text"] == ("Overloaded" if isinstance(end, Failing) else "Connection error.")
