"""A run of openai-agents, and everything that it gives its user."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)

from tests.clients import shop
from tests.clients.ways import Way

MODELS = {"responses": OpenAIResponsesModel, "chat": OpenAIChatCompletionsModel}


def run(way: Way, api: str, streamed: bool, tools: Sequence[Any] = shop.TOOLS) -> dict[str, Any]:
    return asyncio.run(_run(way, api, streamed, tools))


async def _run(way: Way, api: str, streamed: bool, tools: Sequence[Any]) -> dict[str, Any]:
    events: list[Any] = []
    async with way.openai_async() as client:
        agent: Any = Agent(
            name="shop",
            instructions="Help.",
            tools=[function_tool(tool) for tool in tools],
            model=MODELS[api](model="m", openai_client=client),
            model_settings=ModelSettings(parallel_tool_calls=True, include_usage=True),
        )
        config = RunConfig(tracing_disabled=True)
        if streamed:
            result: Any = Runner.run_streamed(agent, shop.QUESTION, run_config=config)
            events = [_told(event) async for event in result.stream_events()]
        else:
            result = await Runner.run(agent, shop.QUESTION, run_config=config)
    return {
        "final": result.final_output,
        "history": result.to_input_list(),
        "usage": result.context_wrapper.usage,
        "ids": [(response.response_id, response.request_id) for response in result.raw_responses],
        "events": events,
    }


def _told(event: Any) -> Any:
    if event.type == "raw_response_event":
        told = event.data.model_dump()
        (told.get("response") or {}).pop("created_at", None)  # over chat, the framework's own clock
        return told
    return event.type, getattr(event, "name", None)
