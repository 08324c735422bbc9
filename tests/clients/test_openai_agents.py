"""openai-agents runs to the same end through the proxy as without it, over Responses and over chat."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients import run_openai_agents, shop
from tests.clients.script import openai_fault
from tests.clients.ways import Both, Way

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*httpx.*:DeprecationWarning"),
    pytest.mark.parametrize("api", run_openai_agents.MODELS),
    pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"]),
]


def test_a_run_with_two_tools_ends_the_same(both: Both, api: str, streamed: bool) -> None:
    got = both.same(lambda way: run_openai_agents.run(way, api, streamed), *shop.LOOP)
    assert got["final"] == shop.ANSWER
    results = [item["output"] for item in got["history"] if item.get("type") == "function_call_output"]
    assert results == shop.RESULTS
    assert got["usage"].total_tokens == 3 * 48
    assert bool(got["events"]) == streamed


def test_a_run_that_the_endpoint_refuses_fails_the_same(both: Both, api: str, streamed: bool) -> None:
    def fail(way: Way) -> Any:
        try:
            run_openai_agents.run(way, api, streamed)
        except Exception as error:  # whatever the framework makes of it: the same one is what counts
            return type(error).__name__, str(error)
        raise AssertionError("the run did not fail")

    refusal = openai_fault(429, "insufficient_quota", "You are out of quota.")
    kind, text = both.same(fail, shop.LOOP[0], refusal)
    assert kind == "RateLimitError"
    assert "out of quota" in text
