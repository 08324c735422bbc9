"""Agent loops of one's own over the bare SDKs, and everything that they give."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from anthropic import beta_tool

from tests.clients import shop
from tests.clients.ways import Way

BETAS = ["interleaved-thinking-2025-05-14", "fine-grained-tool-streaming-2025-05-14"]


def chat(way: Way, streamed: bool, tools: Sequence[Any] = shop.TOOLS) -> list[Any]:
    """The conversation over Chat Completions."""
    messages: list[Any] = [{"role": "user", "content": shop.QUESTION}]
    ask: dict[str, Any] = {"model": "m", "messages": messages, "tools": shop.CHAT_TOOLS}
    with way.openai() as client:
        while True:
            if streamed:
                with client.chat.completions.stream(**ask) as stream:
                    said: Any = stream.get_final_completion().choices[0].message
            else:
                said = client.chat.completions.create(**ask).choices[0].message
            messages.append(said.model_dump(exclude_none=True, exclude={"parsed"}))
            if not said.tool_calls:
                return messages
            for call in said.tool_calls:
                result = shop.run(call.function.name, json.loads(call.function.arguments), tools)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def responses(way: Way, streamed: bool, tools: Sequence[Any] = shop.TOOLS, *, stored: bool = False) -> list[Any]:
    """The final text, what the tools returned, the usage; `stored`: the endpoint keeps the conversation."""
    history: list[Any] = [{"role": "user", "content": shop.QUESTION}]
    results: list[str] = []
    with way.openai() as client:
        said = _response(client, streamed, input=list(history), store=stored)
        while calls := [item for item in said.output if item.type == "function_call"]:
            told = [(call.call_id, shop.run(call.name, json.loads(call.arguments), tools)) for call in calls]
            outputs = [{"type": "function_call_output", "call_id": id, "output": result} for id, result in told]
            history += [*(item.to_dict(mode="json") for item in said.output), *outputs]
            results += [result for _, result in told]
            if stored:
                said = _response(client, streamed, input=outputs, store=True, previous_response_id=said.id)
            else:
                said = _response(client, streamed, input=list(history), store=False)
        return [said.output_text, results, said.usage.model_dump()]


def _response(client: Any, streamed: bool, **ask: Any) -> Any:
    ask |= {"model": "m", "tools": shop.RESPONSES_TOOLS}
    if not streamed:
        return client.responses.create(**ask)
    with client.responses.stream(**ask) as stream:
        return stream.get_final_response()


def messages(way: Way, streamed: bool, tools: Sequence[Any] = shop.TOOLS) -> list[Any]:
    """The conversation over Messages."""
    conversation: list[Any] = [{"role": "user", "content": shop.QUESTION}]
    thinking = {"type": "enabled", "budget_tokens": 1024}
    ask: dict[str, Any] = {"model": "m", "max_tokens": 2048, "tools": shop.MESSAGES_TOOLS, "thinking": thinking}
    with way.anthropic() as client:
        while True:
            if streamed:
                with client.messages.stream(**ask, messages=conversation) as stream:
                    said: Any = stream.get_final_message()
            else:
                said = client.messages.create(**ask, messages=conversation)
            conversation.append({"role": "assistant", "content": said.to_dict()["content"]})
            calls = [block for block in said.content if block.type == "tool_use"]
            if not calls:
                return conversation
            told = [(call.id, shop.run(call.name, dict(call.input), tools)) for call in calls]
            results = [{"type": "tool_result", "tool_use_id": id, "content": result} for id, result in told]
            conversation.append({"role": "user", "content": results})


def tool_runner(way: Way, streamed: bool, tools: Sequence[Any] = shop.TOOLS) -> list[Any]:
    """The messages of the anthropic SDK's own loop."""
    said: list[Any] = [{"role": "user", "content": shop.QUESTION}]
    with way.anthropic() as client:
        runner: Any = client.beta.messages.tool_runner(
            model="m", max_tokens=2048, messages=said, tools=[beta_tool(t) for t in tools], betas=BETAS, stream=streamed
        )
        answers = [answer.get_final_message() if streamed else answer for answer in runner]
        return [answer.to_dict() for answer in answers]
