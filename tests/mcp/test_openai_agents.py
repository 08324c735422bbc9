"""A real framework's client: openai-agents, with the gateway as its MCP server and the proxy as its endpoint."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI

from agentspec.calls import ToolCall
from tests.contract.scripted import Gate, asks_for, speaks
from tests.mcp.support import AGENTSPEC, LOOKED_UP, Shop, Stage, soon, written

pytestmark = pytest.mark.anyio


def server(stage: Stage, shop: Shop) -> MCPServerStdio:
    config = str(written(stage.folder, orders=shop.entry(tools=LOOKED_UP)))
    return MCPServerStdio(
        name="shop",
        client_session_timeout_seconds=20,
        params={
            "command": AGENTSPEC[0],
            "args": [*AGENTSPEC[1:], "mcp", "--config", config, "--proxy", stage.proxy.url],
            "env": {"AGENTSPEC_RUNTIME": stage.runtime, "OPENAI_API_KEY": "k"},
        },
    )


async def run(stage: Stage, mcp: MCPServerStdio, **options: Any) -> Any:
    async with AsyncOpenAI(base_url=f"{stage.proxy.url}/r/{stage.runtime}/v1", api_key="k", max_retries=0) as client:
        model = OpenAIChatCompletionsModel(model="m", openai_client=client)
        agent = Agent(name="shop", model=model, mcp_servers=[mcp], **options)
        result = Runner.run_streamed(agent, "Where is A?", run_config=RunConfig(tracing_disabled=True), max_turns=4)
        async for _ in result.stream_events():
            pass
        return result.final_output


@pytest.mark.parametrize("prefix", ["", "mcp_shop__"])
async def test_the_frameworks_call_is_served_by_the_run_ahead_of_it(stage: Stage, prefix: str) -> None:
    """Once with the server's own names, once with the framework's prefix before them."""
    shop, gate = Shop(stage.folder), Gate()
    async with server(stage, shop) as mcp:
        await stage.joined(stage.runtime)
        stage.guess = [ToolCall(f"{prefix}get_order", {"order_id": "A"})]
        asked = asks_for(f"{prefix}get_order", {"order_id": "A"}, after=gate)
        stage.endpoint.answers(asked, speaks("It is on its way."))
        options: Any = {"mcp_config": {"include_server_in_tool_names": True}} if prefix else {}
        running = asyncio.create_task(run(stage, mcp, **options))
        books = stage.proxy.deps.desk.books
        await soon(lambda: any(bet.latency_s is not None for bet in books._open.values()), "it ran ahead")
        stage.guess = []
        gate.open()
        assert await running == "It is on its way."
        assert shop.ran("get_order A") == 1 and await stage.settled() == {"hit": 1}
    first, second = (exchange.body for exchange in stage.endpoint.exchanges)
    names = [tool["function"]["name"] for tool in first["tools"]]
    assert f"{prefix}get_order" in names and len(names) == 11 and all(name.startswith(prefix) for name in names)
    assert "A at " in str(second["messages"][-1]["content"])
