"""LangChain's ChatOpenAI and LangGraph's agent give the same through the proxy as without it."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from tests.clients import shop
from tests.clients.run_langgraph import APIS, HOW, model_of, run, told
from tests.clients.script import openai_fault
from tests.clients.ways import Both, Way

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*httpx.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*create_react_agent.*"),
    pytest.mark.parametrize("api", APIS),
]


@pytest.mark.parametrize("how", HOW)
def test_a_bound_model_says_the_same(both: Both, api: str, how: str) -> None:
    async def ask_async(model: Any) -> list[Any]:
        if how == "ainvoke":
            return [told(await model.ainvoke(shop.QUESTION))]
        return [told(chunk) async for chunk in model.astream(shop.QUESTION)]

    def ask(way: Way) -> list[Any]:
        model = model_of(way, api).bind_tools(shop.TOOLS)
        if how.startswith("a"):
            return asyncio.run(ask_async(model))
        return [told(model.invoke(shop.QUESTION))] if how == "invoke" else [*map(told, model.stream(shop.QUESTION))]

    got = both.same(ask, shop.THOUGHTFUL)
    if "invoke" in how:
        assert [call["args"]["order_id"] for call in got[0]["tool_calls"]] == ["A1", "Zürich-2"]
        assert got[0]["usage_metadata"]["input_token_details"]["cache_read"] == 16
    else:
        assert len(got) > 10


@pytest.mark.parametrize("how", HOW)
def test_an_agents_loop_ends_the_same(both: Both, api: str, how: str) -> None:
    got = both.same(lambda way: run(way, api, how), *shop.LOOP)
    assert [message["content"] for message in got if message["type"] == "tool"] == shop.RESULTS
    if "invoke" in how:
        assert shop.ANSWER in str(got[-1]["content"]) or got[-1]["content"][0]["text"] == shop.ANSWER


def test_a_refusal_of_the_endpoint_is_raised_the_same(both: Both, api: str) -> None:
    def fail(way: Way) -> Any:
        with pytest.raises(openai.RateLimitError) as caught:
            model_of(way, api).invoke("Hello.")
        return str(caught.value), caught.value.request_id, dict(caught.value.response.headers)

    refusal = openai_fault(429, "insufficient_quota", "You are out of quota.", ("retry-after", "9"))
    text, request_id, headers = both.same(fail, refusal)
    assert "out of quota" in text
    assert (request_id, headers["retry-after"]) == ("req_openai_0", "9")
