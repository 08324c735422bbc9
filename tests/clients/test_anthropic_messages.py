"""The anthropic SDK's Messages give the same through the proxy as without it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.clients import run_sdks
from tests.clients.run_sdks import BETAS
from tests.clients.script import Call, Text
from tests.clients.shop import ANSWER, LOOP, MESSAGES_TOOLS, QUESTION, RESULTS, THOUGHTFUL
from tests.clients.upstream import bodies
from tests.clients.ways import Both, Way

ASK: dict[str, Any] = {"model": "m", "max_tokens": 2048, "messages": [{"role": "user", "content": QUESTION}]}
THINK: dict[str, Any] = {"tools": MESSAGES_TOOLS, "thinking": {"type": "enabled", "budget_tokens": 1024}}

pytestmark = pytest.mark.parametrize("way", ["proxy"], indirect=True)


def asked(way: Way, **more: Any) -> list[Any]:
    """What `create` gives: a message, or all events of a stream."""
    with way.anthropic() as client:
        answer: Any = client.messages.create(**ASK, **more)
        return [part.model_dump() for part in answer] if more.get("stream") else [answer.model_dump()]


async def asked_async(way: Way, **more: Any) -> list[Any]:
    async with way.anthropic_async() as client:
        answer: Any = await client.messages.create(**ASK, **more)
        return [part.model_dump() async for part in answer] if more.get("stream") else [answer.model_dump()]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", ["sync", "async"])
def test_text_thinking_parallel_tools_and_usage_are_the_same(both: Both, client: str, streamed: bool) -> None:
    def ask(way: Way) -> list[Any]:
        options = THINK | {"stream": streamed}
        return asked(way, **options) if client == "sync" else asyncio.run(asked_async(way, **options))

    got = both.same(ask, THOUGHTFUL)
    kinds = ["thinking", "text", "tool_use", "tool_use"]
    if streamed:
        assert [e["content_block"]["type"] for e in got if e["type"] == "content_block_start"] == kinds
        assert (got[0]["type"], got[-1]["type"]) == ("message_start", "message_stop")
    else:
        assert [block["type"] for block in got[0]["content"]] == kinds
        assert got[0]["usage"]["cache_read_input_tokens"] == 16


@pytest.mark.parametrize("cut", [1, 3, 50])
def test_a_stream_that_arrives_in_shreds_is_the_same(both: Both, cut: int) -> None:
    got = both.same(lambda way: asked(way, stream=True), [Text(ANSWER)], cut=cut)
    deltas = [event["delta"]["text"] for event in got if event["type"] == "content_block_delta"]
    assert "".join(deltas) == ANSWER


@pytest.mark.parametrize("client", ["sync", "async"])
def test_the_helper_for_streams_sees_the_same_events(both: Both, client: str) -> None:
    async def events_async(way: Way) -> list[Any]:
        async with way.anthropic_async() as made, made.messages.stream(**ASK, **THINK) as stream:
            seen = [event.model_dump() async for event in stream]
            return [*seen, (await stream.get_final_message()).model_dump(), stream.request_id]

    def events(way: Way) -> list[Any]:
        if client == "async":
            return asyncio.run(events_async(way))
        with way.anthropic() as made, made.messages.stream(**ASK, **THINK) as stream:
            seen = [event.model_dump() for event in stream]
            return [*seen, stream.get_final_message().model_dump(), stream.request_id]

    *seen, request_id = both.same(events, THOUGHTFUL)
    assert request_id == "req_anthropic_0"
    assert {"text", "thinking", "signature", "input_json"} <= {event["type"] for event in seen}


def test_arguments_arrive_piece_by_piece(both: Both) -> None:
    def partial(way: Way) -> list[str]:
        with way.anthropic() as client, client.messages.stream(**ASK, tools=MESSAGES_TOOLS) as stream:
            return [event.partial_json for event in stream if event.type == "input_json"]

    call = Call("get_order", {"order_id": "Zürich-\u2028-2"})
    got = both.same(partial, [call])
    assert len(got) > 5
    assert "".join(got) == call.json


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_loop_of_your_own_ends_the_same(both: Both, streamed: bool) -> None:
    got = both.same(lambda way: run_sdks.messages(way, streamed), THOUGHTFUL, *LOOP[1:])
    assert got[-1]["content"][0]["text"] == ANSWER
    assert [block["content"] for message in got[2:-1:2] for block in message["content"]] == RESULTS


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_the_sdks_tool_runner_ends_the_same(both: Both, streamed: bool) -> None:
    got = both.same(lambda way: run_sdks.tool_runner(way, streamed), *LOOP)
    assert got[-1]["content"][0]["text"] == ANSWER
    sent = [block for block in bodies(both.upstream.asked)[1]["messages"][-1]["content"]]
    assert [block["type"] for block in sent] == ["tool_result", "tool_result"]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_beta_requests_keep_their_path_and_their_headers(both: Both, streamed: bool) -> None:
    def ask(way: Way) -> Any:
        own: Any = {
            "extra_headers": {"anthropic-version": "2023-06-01", "X-Odd": "a,b ,  c"},
            "extra_query": {"beta": "true"},
        }
        with way.anthropic() as client:
            answer: Any = client.beta.messages.create(**ASK, betas=BETAS, stream=streamed, **own)
            return [event.to_dict() for event in answer] if streamed else answer.to_dict()

    both.same(ask, THOUGHTFUL)
    request = both.upstream.asked[0]
    assert request.path == "/v1/messages?beta=true"
    assert request.header("anthropic-beta") == [",".join(BETAS)]
    assert request.header("anthropic-version") == ["2023-06-01"]
    assert request.header("x-api-key") + request.header("authorization") in (["k-1"], ["Bearer k-1"])
    assert request.header("x-odd") == ["a,b ,  c"]


@pytest.mark.parametrize("beta", [False, True], ids=["plain", "beta"])
def test_tokens_are_counted_by_the_endpoint(both: Both, beta: bool) -> None:
    def count(way: Way) -> Any:
        with way.anthropic() as client:
            ask: dict[str, Any] = {"model": "m", "messages": ASK["messages"], "tools": MESSAGES_TOOLS}
            if not beta:
                return client.messages.count_tokens(**ask).to_dict()
            return client.beta.messages.count_tokens(**ask, betas=BETAS, extra_query={"beta": "true"}).to_dict()

    got = both.same(count)
    assert got["input_tokens"] == 101
    assert both.upstream.asked[0].path == "/v1/messages/count_tokens" + "?beta=true" * beta


def test_a_token_instead_of_a_key_reaches_the_endpoint(both: Both) -> None:
    def ask(way: Way) -> Any:
        with way.anthropic(api_key=None, auth_token="t-1") as client:
            return client.messages.create(**ASK).to_dict()

    both.same(ask, [Text("Hi.")])
    assert both.upstream.asked[0].header("authorization") == ["Bearer t-1"]
    assert both.upstream.asked[0].header("x-api-key") == []


def test_raw_responses_carry_the_endpoints_headers(both: Both) -> None:
    def raw(way: Way) -> Any:
        with way.anthropic() as client:
            response = client.messages.with_raw_response.create(**ASK)
            return list(response.headers.multi_items()), response.text(), response.parse()._request_id

    headers, _, request_id = both.same(raw, [Text(ANSWER)])
    assert request_id == "req_anthropic_0"
    assert ("anthropic-ratelimit-tokens-remaining", "399000") in headers
