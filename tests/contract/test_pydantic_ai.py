"""pydantic-ai: what it puts into context variables is its own; what the user hands in as `deps` is the user's."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
from pydantic_ai import Agent, AgentRunResultEvent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from agentspec import speculate
from agentspec.calls import ToolCall
from tests.contract.scripted import Gate, asks_for, speaks
from tests.contract.support import Guesses

SERVED = ("hit", "joined")


def answer_of(runtime: Any, tool: Any, **options: Any) -> str:
    """An agent's answer, streamed, over a model of its own."""

    async def run() -> str:
        client = openai.AsyncOpenAI(base_url=runtime.base_url, api_key="k", http_client=runtime.async_http_client())
        async with client:
            agent: Any = Agent(OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client)), tools=[tool])
            async with agent.run_stream_events("Where is A1?", **options) as events:
                seen = [event async for event in events]
        assert isinstance(seen[-1], AgentRunResultEvent)
        return str(seen[-1].result.output)

    return asyncio.run(run())


def test_a_plain_tools_result_is_handed_over(endpoint, start, join):
    ran, gate = [], Gate()

    @speculate(effect="read", reads={"orders"}, stable_for=30.0)
    def get_order(order_id: str) -> str:
        """One order."""
        ran.append(order_id)
        gate.open()
        return f"order {order_id}"

    proxy = start(Guesses(lambda turn: [ToolCall("get_order", {"order_id": "A1"})] if len(turn.history) < 3 else []))
    endpoint.answers(asks_for("get_order", {"order_id": "A1"}, after=gate), speaks("Done."))
    assert answer_of(join(proxy, get_order), get_order) == "Done."
    assert ran == ["A1"]
    assert proxy.claimed()[0]["outcome"] in SERVED


def test_a_tool_that_reads_its_users_deps_gives_nobody_elses_result(endpoint, start, join):
    ran = []

    @speculate(effect="read", reads={"orders"}, stable_for=30.0)
    def my_orders(context: RunContext[str]) -> str:
        """All orders of the user."""
        ran.append(context.deps)
        return f"orders of {context.deps}"

    proxy = start(Guesses(ToolCall("my_orders", {})))
    runtime = join(proxy, my_orders)
    for name in ("Ada", "Bob"):
        endpoint.reset()
        endpoint.answers(asks_for("my_orders", {}), asks_for("my_orders", {}, id="call_2"), speaks("Done."))
        assert answer_of(runtime, my_orders, deps=name) == "Done."
        told = [m["content"] for m in endpoint.exchanges[-1].body["messages"] if m["role"] == "tool"]
        assert told == [f"orders of {name}"] * 2
