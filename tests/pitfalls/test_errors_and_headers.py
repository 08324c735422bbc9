"""Wire and streaming, rows 4 and 5: errors, what clients retry by, usage; a failure never looks like an answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest

from tests.pitfalls.playing import CHUNKED, JSON, SSE, fetch, read, says, soon, streams
from tests.wire import dialects
from tests.wire.answers import TEXT, Answer, Part
from tests.wire.dialects import Dialect, frames
from tests.wire.say_chat import chunk

pytestmark = pytest.mark.anyio

TOLD = (
    ("retry-after", "7"),
    ("retry-after-ms", "7000.5"),
    ("x-should-retry", "false"),
    ("x-request-id", "req_1"),
    ("request-id", "req_2"),
    ("anthropic-organization-id", "org"),
    ("anthropic-ratelimit-unified-status", "allowed"),
    ("anthropic-ratelimit-input-tokens-reset", "2026-01-01T00:00:00Z"),
    ("x-ratelimit-remaining-tokens", "0"),
    ("x-ratelimit-reset-requests", "1m30.951s"),
    ("openai-processing-ms", "3"),
    ("openai-version", "2020-10-01"),
    ("x-codex-primary-used-percent", "12.5"),
    ("cf-ray", "abc-ZRH"),
    ("set-cookie", "a=1; Path=/"),
    ("set-cookie", "b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT"),
    ("x-odd", ""),
    ("server", "endpoint/1"),
    ("date", "Wed, 21 Oct 2026 07:28:00 GMT"),
)
ERRORS = {
    "chat": b'{ "error" : {"message":"no\\u2028 caf\\u00e9","type":"weird", "param":null,"code":"odd", "x":[1.0]}}\n',
    "responses": b'{"error":{"message":"\xc3\xa9","type":"tokens","code":"rate_limit_exceeded","param":null},"x":1e3}',
    "messages": b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_2"}',
}


@pytest.mark.parametrize("status", [200, 429])
async def test_what_clients_go_by_arrives_with_every_answer(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, streamed: bool, status: int
) -> None:
    """Row: "`retry-after`, `retry-after-ms`, `x-should-retry`, `x-request-id` not passed on"."""
    body = ERRORS[dialect.api.name]
    endpoint.answer = (
        streams(body, headers=[SSE, *TOLD], status=status) if streamed else says(body, JSON, *TOLD, status=status)
    )
    got = await fetch(client, dialect.path, dialect.request(stream=streamed))
    assert (got.status, got.body) == (status, body)
    ours = {"content-type", "content-length", "transfer-encoding", "connection"}
    assert [field for field in got.headers if field[0].lower() not in ours] == list(TOLD)


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("status", [400, 401, 404, 413, 418, 422, 429, 499, 500, 529, 599])
async def test_an_error_keeps_its_status_and_every_byte_of_its_body(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, streamed: bool, status: int, chunked: bool
) -> None:
    """Rows: "error type, code and text rewritten"; "an upstream 4xx becomes an empty 200"; "a body is dropped on a
    streaming error"."""
    body = ERRORS[dialect.api.name]
    half = len(body) // 2
    endpoint.answer = (
        streams(body[:half], body[half:], headers=[JSON], status=status) if chunked else says(body, status=status)
    )
    got = await fetch(client, dialect.path, dialect.request(stream=streamed))
    assert (got.status, got.body, got.header("content-type")) == (status, body, ["application/json"])


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"\xff\xfe", b"data: {}\n\n"])
async def test_an_error_without_json_is_not_given_any(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, body: bytes
) -> None:
    """Row: "error type, code and text rewritten"."""
    endpoint.answer = says(body, ("content-type", "text/html"), status=502)
    got = await fetch(client, dialect.path, dialect.request())
    assert (got.status, got.body, got.header("content-type")) == (502, body, ["text/html"])


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirection_is_the_clients_to_follow(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, status: int
) -> None:
    """Row: an upstream status becomes another one."""
    endpoint.answer = says(b"moved", ("location", "/v1/elsewhere"), status=status)
    got = await fetch(client, dialect.path, dialect.request())
    assert (got.status, got.body, got.header("location")) == (status, b"moved", ["/v1/elsewhere"])
    assert len(endpoint.seen) == 1


async def test_openai_retries_when_the_endpoint_says_so(endpoint: Any, proxy: Any) -> None:
    """Row: "`retry-after-ms`, `x-should-retry` ... not passed on": the client waits as long as it was told."""

    async def answer(exchange: Any) -> None:
        if len(endpoint.seen) == 1:
            await exchange.whole(ERRORS["chat"], 418, JSON, ("x-should-retry", "true"), ("retry-after-ms", "1"))
        else:
            await exchange.whole(dialects.chat.whole(Answer((Part(TEXT, ("hi",)),))), 200, JSON)

    endpoint.answer = answer
    async with openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=1) as sdk:
        said = await soon(sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}]), 5)
    assert said.choices[0].message.content == "hi"


async def test_openai_raises_the_endpoints_own_error_on_a_stream(endpoint: Any, proxy: Any) -> None:
    """Row: "error type, code and text rewritten", on a request for a stream."""
    endpoint.answer = says(ERRORS["responses"], JSON, *TOLD, status=429)
    async with openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0) as sdk:
        with pytest.raises(openai.RateLimitError) as caught:
            await sdk.responses.create(model="m", input="x", stream=True)
    assert (caught.value.code, caught.value.type) == ("rate_limit_exceeded", "tokens")
    assert caught.value.response.content == ERRORS["responses"]
    assert caught.value.request_id == "req_1"


async def test_usage_is_not_invented(
    endpoint: Any, client: httpx.AsyncClient, turns: Any, dialect: Dialect, streamed: bool
) -> None:
    """Row: "usage invented": where the endpoint counted nothing, neither the client nor our books have a count."""
    if streamed:
        data = frames([_without_usage(p) for p in dialect.payloads(Answer((Part(TEXT, ("hi",)),))) if _counts_less(p)])
        endpoint.answer = streams(data)
    else:
        data = json.dumps(_without_usage(dialect.body(Answer((Part(TEXT, ("hi",)),))))).encode()
        endpoint.answer = says(data)
    got = await fetch(client, dialect.path, dialect.request(stream=streamed))
    assert got.body == data
    assert b"usage" not in got.body
    booked = [(turn["prompt_tokens"], turn["completion_tokens"]) for turn in turns()]
    assert booked == [(None, None)]


def _counts_less(payload: Any) -> bool:
    return payload == "[DONE]" or payload.get("choices") != []


def _without_usage(payload: Any) -> Any:
    if isinstance(payload, dict):
        return {key: _without_usage(value) for key, value in payload.items() if key != "usage"}
    return payload


async def test_usage_is_booked_as_the_endpoint_counted_it(
    endpoint: Any, client: httpx.AsyncClient, turns: Any, dialect: Dialect, streamed: bool
) -> None:
    """Row: "usage invented": what was counted is what we note."""
    answer = Answer((Part(TEXT, ("hi",)),), prompt_tokens=1234, completion_tokens=56)
    endpoint.answer = streams(dialect.stream(answer)) if streamed else says(dialect.whole(answer))
    await fetch(client, dialect.path, dialect.request(stream=streamed))
    booked = [(turn["prompt_tokens"], turn["completion_tokens"]) for turn in turns()]
    assert booked == [(1234, 56)]


@pytest.mark.parametrize("options", [{"include_usage": False}, {"include_usage": True}, {}, None])
async def test_the_request_for_usage_is_not_flipped(
    endpoint: Any, client: httpx.AsyncClient, options: dict[str, bool] | None
) -> None:
    """Row: "`include_usage:false` flipped"."""
    body = dialects.chat.request(stream_options=options)
    await fetch(client, dialects.chat.path, body)
    assert endpoint.seen[0].body == body


async def test_chunks_without_choices_pass_as_they_are(endpoint: Any, client: httpx.AsyncClient) -> None:
    """Row: "`choices:[]` altered"; some endpoints send their content filter's findings first, without a choice."""
    first = {"choices": [], "id": "", "model": "", "object": "", "prompt_filter_results": [{"prompt_index": 0}]}
    counted = {"id": "x", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "x": None}}
    data = frames([first, chunk({"content": "hi"}), chunk({}, "stop"), counted, "[DONE]"])
    endpoint.answer = streams(data)
    got = await fetch(client, dialects.chat.path, dialects.chat.request())
    assert got.body == data


@pytest.mark.parametrize("fault", ["error event", "nothing more", "half an event", "no event at all"])
async def test_a_stream_without_an_end_is_given_none(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, fault: str
) -> None:
    """Row: "stream ends with no terminal event": we add none, and our own reader survives it."""
    whole = dialect.stream(Answer((Part(TEXT, ("hel", "lo")),)))
    begun = whole[: whole.index(b'"lo"')]
    begun = begun[: begun.rindex(b"\n\n") + 2]
    extra = {
        "error event": b"event: error\ndata: " + ERRORS[dialect.api.name].strip() + b"\n\n",
        "half an event": b'data: {"type": "content',
    }
    data = b"" if fault == "no event at all" else begun + extra.get(fault, b"")
    endpoint.answer = streams(data)
    got = await fetch(client, dialect.path, dialect.request())
    assert (got.status, got.body) == (200, data)
    assert [event for event in read(dialect, got.body, True) if type(event).__name__ == "TurnEnd"][1:] == []


@pytest.mark.parametrize("framing", [CHUNKED, ("content-length", "100000"), None])
async def test_a_stream_that_is_cut_off_does_not_end_well(
    endpoint: Any, proxy: Any, dialect: Dialect, framing: tuple[str, str] | None
) -> None:
    """Row: "stream ends with no terminal event": a broken connection must not look like the end of the answer."""

    async def answer(exchange: Any) -> None:
        await exchange.start(200, SSE, *filter(None, [framing]))
        await (exchange.chunk(b"data: half\n\n") if framing == CHUNKED else exchange.raw(b"data: half\n\n"))
        await soon(read_on.wait())
        exchange.wire.cut()

    read_on = asyncio.Event()
    endpoint.answer = answer
    wire = await proxy.ask(dialect.path, dialect.request())
    await soon(wire.until(b"half\n\n"))
    read_on.set()
    assert not (await soon(wire.rest())).endswith(b"0\r\n\r\n")
