"""pydantic-ai runs to the same end through the proxy as without it: OpenAI Responses, OpenAI chat, Anthropic."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from tests.clients import run_pydantic_ai, shop
from tests.clients.script import anthropic_fault, openai_fault
from tests.clients.ways import Both, Way

pytestmark = [
    pytest.mark.parametrize("way", ["proxy"], indirect=True),
    pytest.mark.parametrize("api", run_pydantic_ai.APIS),
    pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"]),
]


def test_a_run_with_two_tools_ends_the_same(both: Both, api: str, streamed: bool) -> None:
    turns = (shop.THOUGHTFUL, *shop.LOOP[1:])
    got = both.same(lambda way: run_pydantic_ai.run(way, api, streamed), *turns)
    assert got["output"] == shop.ANSWER
    returned = [part[1][0] for part in got["messages"] if part[0] == "ToolReturnPart"]
    assert returned == shop.RESULTS
    assert got["usage"].requests == 3
    assert bool(got["events"]) == streamed


def test_a_run_that_the_endpoint_refuses_fails_the_same(both: Both, api: str, streamed: bool) -> None:
    def fail(way: Way) -> Any:
        with pytest.raises(ModelHTTPError) as caught:
            run_pydantic_ai.run(way, api, streamed)
        return caught.value.status_code, caught.value.body, str(caught.value)

    fault = anthropic_fault if api == "anthropic" else openai_fault
    refusal = fault(429, "rate_limit_error", "Slow down.")
    status, body, _ = both.same(fail, shop.LOOP[0], refusal)
    assert status == 429
    assert "Slow down." in str(body)
