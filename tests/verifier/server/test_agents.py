"""Agent frameworks run whole agents on the server; forced calls give a model of random weights a path."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import ModelSettings as PydanticSettings
from pydantic_ai import NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.openai import OpenAIResponsesModel as PydanticResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from agentspec.verifier.server.service import Service

CITIES = Literal["Paris", "Rom"]
MODELS: dict[str, Any] = {"responses": OpenAIResponsesModel, "chat": OpenAIChatCompletionsModel}
PYDANTIC_MODELS: dict[str, Any] = {"responses": PydanticResponsesModel, "chat": OpenAIChatModel}

# `required`, which pydantic-ai asks for, leaves room for text before the call, and random weights write for ever
FORCED: dict[str, Any] = {
    "responses": {"tool_choice": {"type": "function", "name": "final_result"}},
    "chat": {"tool_choice": {"type": "function", "function": {"name": "final_result"}}},
}


class Weather(BaseModel):
    city: CITIES
    wet: bool


@pytest.fixture
def asked() -> Iterator[list[str]]:
    """The cities that the tool was called with."""
    asked: list[str] = []
    yield asked
    asked.clear()


@pytest.fixture
def no_second_call(service: Service) -> dict[str, Any]:
    """Random weights would call for ever: what begins `"name"` is unlikely, and comes only where nothing else may."""
    tokens = [i for i in range(service.vocab_size) if service.text.piece(i).lstrip(b'{"').startswith(b"n")]
    return {"logit_bias": dict.fromkeys(map(str, tokens), -100)}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", ["responses", "chat"])
def test_openai_agents_call_their_tool_and_go_on(
    base_url: str, api: str, streamed: bool, asked: list[str], no_second_call: dict[str, Any]
) -> None:
    def get_weather(city: CITIES) -> str:
        """The weather of a city."""
        asked.append(city)
        return "rain"

    async def run() -> Any:
        async with AsyncOpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0) as client:
            agent: Any = Agent(
                name="shop",
                instructions="Help.",
                tools=[function_tool(get_weather)],
                output_type=Weather,
                model=MODELS[api](model="tiny", openai_client=client),
                model_settings=ModelSettings(
                    tool_choice="get_weather",
                    temperature=0,
                    max_tokens=200,
                    include_usage=True,
                    extra_body=no_second_call,
                ),
            )
            config = RunConfig(tracing_disabled=True)
            if not streamed:
                return await Runner.run(agent, "Paris?", run_config=config)
            result: Any = Runner.run_streamed(agent, "Paris?", run_config=config)
            async for _ in result.stream_events():
                pass
            return result

    result = asyncio.run(run())
    assert len(asked) == 1 and asked[0] in ("Paris", "Rom")
    kinds = [item.type for item in result.new_items]
    assert kinds[:2] == ["tool_call_item", "tool_call_output_item"]
    assert result.context_wrapper.usage.requests == 2
    assert result.context_wrapper.usage.input_tokens_details.cached_tokens > 0
    assert isinstance(result.final_output, Weather)


@pytest.mark.parametrize("api", ["responses", "chat"])
@pytest.mark.parametrize("output", [ToolOutput, NativeOutput])
def test_pydantic_ai_gets_what_its_type_says(base_url: str, api: str, output: Any) -> None:
    async def run() -> Weather:
        async with AsyncOpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0) as client:
            model = PYDANTIC_MODELS[api]("tiny", provider=OpenAIProvider(openai_client=client))
            settings = PydanticSettings(
                temperature=0, max_tokens=300, extra_body=FORCED[api] if output is ToolOutput else {}
            )
            agent: Any = PydanticAgent(
                model, instructions="Help.", output_type=output(Weather), model_settings=settings
            )
            result = await agent.run("What is the weather?")
            found: Weather = result.output
            return found

    assert isinstance(asyncio.run(run()), Weather)
