"""A run of pydantic-ai, and everything that it gives its user."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from pydantic_ai import Agent, AgentRunResultEvent
from pydantic_ai.messages import ModelMessage, ModelResponse, PartDeltaEvent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients import shop
from tests.clients.ways import Way

APIS = ("responses", "chat", "anthropic")


async def _model_of(way: Way, api: str, stack: AsyncExitStack) -> Any:
    if api == "anthropic":
        claude = await stack.enter_async_context(way.anthropic_async())
        return AnthropicModel("m", provider=AnthropicProvider(anthropic_client=claude))
    client = await stack.enter_async_context(way.openai_async())
    made: Any = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
    return made("m", provider=OpenAIProvider(openai_client=client))


def run(way: Way, api: str, streamed: bool, tools: Sequence[Any] = shop.TOOLS) -> dict[str, Any]:
    return asyncio.run(_run(way, api, streamed, tools))


async def _run(way: Way, api: str, streamed: bool, tools: Sequence[Any]) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        agent = Agent(await _model_of(way, api, stack), instructions="Help.", tools=list(tools))
        if not streamed:
            return _told(await agent.run(shop.QUESTION), [])
        async with agent.run_stream_events(shop.QUESTION) as events:
            seen = [event async for event in events]
        assert isinstance(seen[-1], AgentRunResultEvent)
        return _told(seen[-1].result, [_plain_event(event) for event in seen[:-1]])


def _told(result: Any, events: list[Any]) -> dict[str, Any]:
    """A run's result; what parallel tools return comes in any order as events, and in theirs as messages."""
    events = [event for event in events if event[0] != "FunctionToolResultEvent"]
    return {"output": result.output, "messages": _plain(result.all_messages()), "usage": result.usage, "events": events}


def _plain_event(event: Any) -> Any:
    if isinstance(event, PartDeltaEvent):
        return type(event).__name__, event
    part = getattr(event, "part", None)
    return type(event).__name__, getattr(event, "index", None), None if part is None else _said(part)


def _plain(messages: list[ModelMessage]) -> list[Any]:
    """The messages without what the framework makes up for itself: its clock and its run ids."""
    found: list[Any] = []
    for message in messages:
        found += [(type(part).__name__, _said(part)) for part in message.parts]
        if isinstance(message, ModelResponse):
            found.append((message.model_name, message.provider_response_id, message.finish_reason, message.usage))
    return found


def _said(part: Any) -> Any:
    return tuple(getattr(part, name, None) for name in ("content", "args", "tool_call_id", "signature"))
