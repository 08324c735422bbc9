"""The anthropic SDK raises the same errors through the proxy as without it, and typed ones for the proxy's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import anthropic
import httpx2
import pytest

from tests.clients.script import BreakingOff, Failing, Text, Turn, anthropic_fault
from tests.clients.serving import StartProxy, nobody_there
from tests.clients.upstream import Upstream
from tests.clients.ways import Both, Way, error_of, error_of_async

ASK: dict[str, Any] = {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": "Hello."}]}
CALLS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda client: client.messages.create(**ASK),
    "streamed": lambda client: client.messages.create(**ASK, stream=True),
    "beta": lambda client: client.beta.messages.create(**ASK, betas=["b-1"]),
    "count_tokens": lambda client: client.messages.count_tokens(model="m", messages=ASK["messages"]),
}
KINDS = {
    400: ("invalid_request_error", anthropic.BadRequestError),
    401: ("authentication_error", anthropic.AuthenticationError),
    403: ("permission_error", anthropic.PermissionDeniedError),
    404: ("not_found_error", anthropic.NotFoundError),
    413: ("request_too_large", anthropic.APIStatusError),
    429: ("rate_limit_error", anthropic.RateLimitError),
    500: ("api_error", anthropic.InternalServerError),
    529: ("overloaded_error", anthropic.APIStatusError),
}

RETRIED = (429, 500, 529)

straight_and_proxied = pytest.mark.parametrize("way", ["proxy"], indirect=True)
each_call = pytest.mark.parametrize("name", ["whole", "streamed", "beta"])


def ask(client: Any, name: str) -> Any:
    answer = CALLS[name](client)
    return [part.to_dict() for part in answer] if name == "streamed" else answer.to_dict()


def failing(way: Way, *names: str, **options: Any) -> list[dict[str, Any]]:
    """The errors of these calls, one after the other."""
    with way.anthropic(**options) as client:
        return [error_of(partial(ask, client, name)) for name in names]


async def failing_async(way: Way, *names: str) -> list[dict[str, Any]]:
    async with way.anthropic_async() as client:

        async def ask_async(name: str) -> Any:
            answer = await CALLS[name](client)
            return [part async for part in answer] if name == "streamed" else answer

        return [await error_of_async(ask_async(name)) for name in names]


@straight_and_proxied
@each_call
def test_an_error_of_the_endpoint_is_raised_the_same(both: Both, name: str) -> None:
    faults = [anthropic_fault(status, KINDS[status][0], "Nö: ask\u2028later", ("retry-after", "7")) for status in KINDS]
    errors = both.same(lambda way: failing(way, *[name] * len(faults)), *faults)
    for number, (got, (status, (kind, error))) in enumerate(zip(errors, KINDS.items(), strict=True)):
        assert issubclass(got["type"], error)
        assert (got["status"], got["kind"], got["request_id"]) == (status, kind, f"req_anthropic_{number}")
        assert got["headers"]["retry-after"] == "7"


@straight_and_proxied
def test_the_async_client_raises_it_the_same(both: Both) -> None:
    fault = anthropic_fault(429, "rate_limit_error", "Slow down.", ("retry-after-ms", "12"))
    for got in both.same(lambda way: asyncio.run(failing_async(way, "whole", "streamed")), fault, fault):
        assert got["type"] is anthropic.RateLimitError


@straight_and_proxied
@each_call
def test_the_sdk_retries_as_soon_as_the_endpoint_says(both: Both, name: str) -> None:
    def ask_each(way: Way) -> list[Any]:
        with way.anthropic(max_retries=2) as client:
            return [ask(client, name) for _ in RETRIED]

    soon = ("retry-after-ms", "5")
    turns: list[Turn] = []
    for status in RETRIED:
        turns += [*[anthropic_fault(status, KINDS[status][0], "Busy.", soon)] * 2, [Text("At last.")]]
    both.same(ask_each, *turns)
    counts = [one.header("x-stainless-retry-count") for one in both.upstream.asked]
    assert counts == [["0"], ["1"], ["2"]] * len(RETRIED)


@straight_and_proxied
@each_call
def test_the_sdk_does_not_retry_what_the_endpoint_forbids_to(both: Both, name: str) -> None:
    refusal = anthropic_fault(529, "overloaded_error", "Spent.", ("x-should-retry", "false"), ("retry-after-ms", "5"))
    both.same(lambda way: failing(way, name, max_retries=2), refusal)


@straight_and_proxied
@pytest.mark.parametrize("client", ["sync", "async"])
def test_an_error_event_in_a_stream_is_raised_the_same(both: Both, client: str) -> None:
    def fail(way: Way) -> Any:
        return failing(way, "streamed") if client == "sync" else asyncio.run(failing_async(way, "streamed"))

    (got,) = both.same(fail, [Text("Half an ans"), Failing("Overloaded")])
    assert got["kind"] == "overloaded_error"


@straight_and_proxied
@pytest.mark.parametrize("client", ["sync", "async"])
def test_a_stream_that_breaks_off_fails_the_same(both: Both, client: str) -> None:
    def fail(way: Way) -> Any:
        try:
            return failing(way, "streamed") if client == "sync" else asyncio.run(failing_async(way, "streamed"))
        except httpx2.HTTPError as error:  # the SDK leaves it as its HTTP client raised it
            return type(error), str(error)

    assert both.same(fail, [Text("Half an ans"), BreakingOff()])


def test_an_endpoint_that_is_down_is_named_in_the_sdks_error(start_proxy: StartProxy) -> None:
    endpoint = nobody_there()
    for got in failing(Way("proxy", start_proxy(endpoint).root), *CALLS):
        assert (got["type"], got["status"], got["kind"]) == (anthropic.InternalServerError, 502, "api_error")
        assert got["body"]["type"] == "error"
        assert endpoint in got["body"]["error"]["message"]
        assert "Is it running" in got["text"]


def test_a_request_that_is_too_large_is_refused_in_words(upstream: Upstream, start_proxy: StartProxy) -> None:
    upstream.plays()
    way = Way("proxy", start_proxy(f"{upstream.root}/v1", max_body_bytes=20).root)
    for got in failing(way, *CALLS, max_retries=2):
        assert issubclass(got["type"], anthropic.APIStatusError)
        assert (got["status"], got["kind"]) == (413, "request_too_large")
        assert got["body"]["type"] == "error"
        assert "larger than 20 bytes" in got["body"]["error"]["message"]
    assert upstream.asked == []
