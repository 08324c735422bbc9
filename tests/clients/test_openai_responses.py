"""The openai SDK's Responses give the same through the proxy as without it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.clients import run_sdks
from tests.clients.script import BreakingOff, Failing, Text
from tests.clients.shop import ANSWER, LOOP, QUESTION, RESPONSES_TOOLS, RESULTS, THOUGHTFUL
from tests.clients.ways import Both, Way, error_of

ASK: dict[str, Any] = {"model": "m", "input": QUESTION, "instructions": "Be brief."}

pytestmark = pytest.mark.filterwarnings("ignore:.*httpx.*:DeprecationWarning")


def asked(way: Way, **more: Any) -> list[Any]:
    """What `create` gives: a response, or all events of a stream."""
    with way.openai() as client:
        answer: Any = client.responses.create(**ASK, **more)
        return [part.model_dump() for part in answer] if more.get("stream") else [answer.model_dump()]


async def asked_async(way: Way, **more: Any) -> list[Any]:
    async with way.openai_async() as client:
        answer: Any = await client.responses.create(**ASK, **more)
        return [part.model_dump() async for part in answer] if more.get("stream") else [answer.model_dump()]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", ["sync", "async"])
def test_text_reasoning_tool_calls_and_usage_are_the_same(both: Both, client: str, streamed: bool) -> None:
    def ask(way: Way) -> list[Any]:
        options = {"tools": RESPONSES_TOOLS, "parallel_tool_calls": True, "stream": streamed}
        return asked(way, **options) if client == "sync" else asyncio.run(asked_async(way, **options))

    got = both.same(ask, THOUGHTFUL)
    last = got[-1]["response"] if streamed else got[-1]
    assert [item["type"] for item in last["output"]] == ["reasoning", "message", "function_call", "function_call"]
    assert last["usage"]["input_tokens_details"]["cached_tokens"] == 16
    if streamed:
        assert [event["sequence_number"] for event in got] == list(range(len(got)))
        assert got[-1]["type"] == "response.completed"


@pytest.mark.parametrize("cut", [1, 3, 50])
def test_a_stream_that_arrives_in_shreds_is_the_same(both: Both, cut: int) -> None:
    got = both.same(lambda way: asked(way, stream=True), [Text(ANSWER)], cut=cut)
    deltas = [event["delta"] for event in got if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == ANSWER


def test_the_helper_for_streams_sees_the_same_events(both: Both) -> None:
    def events(way: Way) -> list[Any]:
        with way.openai() as client, client.responses.stream(**ASK, tools=RESPONSES_TOOLS) as stream:
            seen = [event.model_dump(warnings=False) for event in stream]
            return [*seen, stream.get_final_response().to_dict(mode="json", warnings=False)]

    got = both.same(events, THOUGHTFUL)
    assert "response.function_call_arguments.done" in {event.get("type") for event in got}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("stored", [False, True], ids=["resent", "by_previous_response_id"])
def test_a_loop_of_your_own_ends_the_same(both: Both, stored: bool, streamed: bool) -> None:
    text, results, _ = both.same(lambda way: run_sdks.responses(way, streamed, stored=stored), *LOOP)
    assert (text, results) == (ANSWER, RESULTS)


def test_raw_responses_carry_the_endpoints_headers(both: Both) -> None:
    def raw(way: Way) -> Any:
        with way.openai() as client:
            response = client.responses.with_raw_response.create(**ASK)
            return (
                response.request_id,
                list(response.headers.multi_items()),
                response.text,
                response.parse().model_dump(),
            )

    request_id, headers, *_ = both.same(raw, [Text(ANSWER)])
    assert request_id == "req_openai_0"
    assert ("x-ratelimit-remaining-tokens", "29981") in headers


def test_a_stored_response_can_be_fetched_and_deleted(both: Both) -> None:
    def fetch(way: Way) -> Any:
        with way.openai() as client:
            found = client.responses.retrieve("resp_7", include=["reasoning.encrypted_content"])
            client.responses.delete("resp_7")
            return found.model_dump()

    found = both.same(fetch)
    assert found["metadata"]["asked"] == "/v1/responses/resp_7?include%5B%5D=reasoning.encrypted_content"


def test_a_response_that_failed_at_the_endpoint_is_told_as_such(both: Both) -> None:
    got = both.same(lambda way: asked(way, stream=True), [Text("Half an ans"), Failing("no capacity")])
    assert got[-1]["type"] == "response.failed"
    assert got[-1]["response"]["error"]["message"] == "no capacity"


@pytest.mark.parametrize("client", ["sync", "async"])
def test_a_stream_that_breaks_off_fails_the_same(both: Both, client: str) -> None:
    def ask(way: Way) -> Any:
        if client == "sync":
            return error_of(lambda: asked(way, stream=True))
        return error_of(lambda: asyncio.run(asked_async(way, stream=True)))

    assert both.same(ask, [Text("Half an ans"), BreakingOff()])["text"] == "Connection error."
