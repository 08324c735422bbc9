"""A run of LangGraph's agent over LangChain's ChatOpenAI, and everything that it gives its user."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import openai
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

from tests.clients import shop
from tests.clients.ways import Way

APIS = {"chat": False, "responses": True}
HOW = ("invoke", "ainvoke", "stream", "astream")


def model_of(way: Way, api: str) -> ChatOpenAI:
    """A model whose connections and cookies are its own: LangChain shares them between models."""
    options: dict[str, Any] = {
        "http_client": way.client() or openai.DefaultHttpxClient(),
        "http_async_client": way.async_client() or openai.DefaultAsyncHttpxClient(),
    }
    return ChatOpenAI(
        model="m", base_url=way.v1, api_key="k-1", max_retries=0, use_responses_api=APIS[api],
        stream_usage=True, **options,
    )  # fmt: skip


def told(message: Any) -> Any:
    """A message without the id that LangChain makes up for its run."""
    data = message.model_dump()
    data["id"] = None if str(data["id"]).startswith(("lc_run", "run-")) or message.type != "ai" else data["id"]
    return data


def run(way: Way, api: str, how: str, tools: Sequence[Any] = shop.TOOLS) -> list[Any]:
    """All messages of a run, or all chunks of them."""
    agent: Any = create_react_agent(model_of(way, api), [langchain_tool(tool) for tool in tools], prompt="Help.")
    if how.startswith("a"):
        messages = asyncio.run(_run_async(agent, how))
    elif how == "invoke":
        messages = agent.invoke(_QUESTION)["messages"]
    else:
        messages = [chunk for chunk, _ in agent.stream(_QUESTION, stream_mode="messages")]
    return in_order([told(message) for message in messages])


_QUESTION: Any = {"messages": [("user", shop.QUESTION)]}


async def _run_async(agent: Any, how: str) -> list[Any]:
    if how == "ainvoke":
        return list((await agent.ainvoke(_QUESTION))["messages"])
    return [chunk async for chunk, _ in agent.astream(_QUESTION, stream_mode="messages")]


def in_order(messages: list[Any]) -> list[Any]:
    """Parallel tools end in any order: results that stand together are sorted by their call."""
    ordered = list(messages)
    for start, message in enumerate(ordered):
        end = start
        while message["type"] == "tool" and end < len(ordered) and ordered[end]["type"] == "tool":
            end += 1
        ordered[start:end] = sorted(ordered[start:end], key=lambda told: str(told["tool_call_id"]))
    return ordered
