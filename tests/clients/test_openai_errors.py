"""The openai SDK raises the same errors, and retries the same, through the proxy as without it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import openai
import pytest

from tests.clients.script import Fault, Text, Turn, openai_fault
from tests.clients.serving import StartProxy, nobody_there
from tests.clients.upstream import Upstream
from tests.clients.ways import Both, Way, error_of, error_of_async

SAID: Any = [{"role": "user", "content": "Hello."}]
CALLS: dict[str, Callable[[Any], Any]] = {
    "chat": lambda client: client.chat.completions.create(model="m", messages=SAID),
    "chat_streamed": lambda client: client.chat.completions.create(model="m", messages=SAID, stream=True),
    "responses": lambda client: client.responses.create(model="m", input="Hello."),
    "responses_streamed": lambda client: client.responses.create(model="m", input="Hello.", stream=True),
}
KINDS = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    409: openai.ConflictError,
    422: openai.UnprocessableEntityError,
    429: openai.RateLimitError,
    503: openai.InternalServerError,
}
RETRIED = (408, 409, 429, 500, 503)

pytestmark = pytest.mark.filterwarnings("ignore:.*httpx.*:DeprecationWarning")


def ask(client: Any, name: str) -> Any:
    answer = CALLS[name](client)
    return [part.model_dump() for part in answer] if "streamed" in name else answer.model_dump()


def failing(way: Way, *names: str, **options: Any) -> list[dict[str, Any]]:
    """The errors of these calls, one after the other."""
    with way.openai(**options) as client:
        return [error_of(partial(ask, client, name)) for name in names]


def asked(way: Way, *names: str, **options: Any) -> list[Any]:
    with way.openai(**options) as client:
        return [ask(client, name) for name in names]


@pytest.mark.parametrize("name", CALLS)
def test_an_error_of_the_endpoint_is_raised_the_same(both: Both, name: str) -> None:
    told = ("retry-after", "7"), ("retry-after-ms", "7001"), ("x-own", "a, b")
    faults = [openai_fault(status, "scripted", "Nö: ask\u2028later", *told) for status in KINDS]
    errors = both.same(lambda way: failing(way, *[name] * len(faults)), *faults)
    for number, (got, fault) in enumerate(zip(errors, faults, strict=True)):
        assert (got["type"], got["status"], got["code"]) == (KINDS[fault.status], fault.status, "scripted")
        assert got["request_id"] == f"req_openai_{number}"
        assert got["headers"]["retry-after"] == "7"
        assert got["body"] == json.loads(fault.body)["error"]


def test_the_async_client_raises_it_the_same(both: Both) -> None:
    async def fail(way: Way) -> list[Any]:
        async with way.openai_async() as client:
            return [await error_of_async(call(client)) for call in CALLS.values()]

    fault = openai_fault(429, "rate_limit_exceeded", "Slow down.", ("retry-after-ms", "12"))
    for got in both.same(lambda way: asyncio.run(fail(way)), *[fault] * len(CALLS)):
        assert (got["type"], got["headers"]["retry-after-ms"]) == (openai.RateLimitError, "12")


def test_an_error_in_no_known_shape_is_raised_the_same(both: Both) -> None:
    faults = [Fault(502, body) for body in (b"", b"<html>bad gateway</html>", b"[1]", b'"no"', b"{")]
    for got in both.same(lambda way: failing(way, *["chat"] * len(faults)), *faults):
        assert got["type"] is openai.InternalServerError


@pytest.mark.parametrize("name", CALLS)
def test_the_sdk_retries_as_soon_as_the_endpoint_says(both: Both, name: str) -> None:
    soon = ("retry-after-ms", "5")
    turns: list[Turn] = []
    for status in RETRIED:
        turns += [*[openai_fault(status, "busy", "Busy.", soon)] * 2, [Text("At last.")]]
    both.same(lambda way: asked(way, *[name] * len(RETRIED), max_retries=2), *turns)
    counts = [one.header("x-stainless-retry-count") for one in both.upstream.asked]
    assert counts == [["0"], ["1"], ["2"]] * len(RETRIED)


@pytest.mark.parametrize("name", CALLS)
def test_the_sdk_retries_what_the_endpoint_wants_retried_and_nothing_else(both: Both, name: str) -> None:
    def ask_twice(way: Way) -> Any:
        return failing(way, name, max_retries=2), asked(way, name, max_retries=1)

    forbids = openai_fault(503, "spent", "Spent.", ("x-should-retry", "false"), ("retry-after-ms", "5"))
    wants = openai_fault(400, "again", "Again.", ("x-should-retry", "true"), ("retry-after-ms", "5"))
    both.same(ask_twice, forbids, wants, [Text("At last.")])


def test_an_endpoint_that_is_down_is_named_in_the_sdks_error(start_proxy: StartProxy) -> None:
    endpoint = nobody_there()
    for got in failing(Way("proxy", start_proxy(endpoint).root), *CALLS):
        assert (got["type"], got["status"]) == (openai.InternalServerError, 502)
        assert got["code"] == "upstream_unreachable"
        assert endpoint in got["body"]["message"]
        assert "Is it running" in got["text"]


def test_a_request_that_is_too_large_is_refused_in_words(upstream: Upstream, start_proxy: StartProxy) -> None:
    upstream.plays()
    way = Way("proxy", start_proxy(f"{upstream.root}/v1", max_body_bytes=20).root)
    for got in failing(way, *CALLS, max_retries=2):
        assert (got["type"], got["status"], got["code"]) == (openai.APIStatusError, 413, "request_too_large")
        assert "larger than 20 bytes" in got["text"]
    assert upstream.asked == []
