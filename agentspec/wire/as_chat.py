"""A Responses or Messages request as the chat that it means, for forks of the turn on engines that continue chats.

Engines of one's own render all three APIs through one chat template, so the translated prefix is the running turn's.
What has no counterpart there (an image, a conversation that the endpoint keeps) makes the whole untranslatable: a fork
of something else would only mislead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from agentspec.wire.answers import dicts
from agentspec.wire.request import mapping, text_of

Chat = dict[str, Any]

_CARRIED = ("model", "parallel_tool_calls", "chat_template_kwargs", "cache_salt")


class _Untranslatable(Exception):
    """There is no chat that means the same."""


def as_chat(api: str, body: dict[str, Any]) -> Chat | None:
    """The chat request that means the same, None where there is none; a chat request is its own."""
    try:
        if api == "responses":
            return _of_responses(body)
        return _of_messages(body) if api == "messages" else body
    except _Untranslatable:
        return None


def _request(body: dict[str, Any], messages: list[Chat], tools: list[Chat]) -> Chat:
    request = {name: body[name] for name in _CARRIED if name in body}
    return {**request, "messages": messages, **({"tools": tools} if tools else {})}


def _function(tool: dict[str, Any], parameters: str) -> Chat:
    if not isinstance(tool.get("name"), str) or parameters not in tool:
        raise _Untranslatable
    told = {"description": tool["description"]} if tool.get("description") else {}
    return {"type": "function", "function": {"name": tool["name"], **told, "parameters": tool[parameters]}}


def _call(identity: Any, name: Any, arguments: str) -> Chat:
    return {"id": text_of(identity), "type": "function", "function": {"name": text_of(name), "arguments": arguments}}


def _said(messages: list[Chat], content: str, calls: list[Chat]) -> None:
    """The assistant says more: what it says without a break is one message."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": content})
    elif content:
        messages[-1]["content"] = (messages[-1]["content"] or "") + content
    if calls:
        messages[-1]["tool_calls"] = [*messages[-1].get("tool_calls", []), *calls]


def _text(content: Any) -> str:
    """Content that is nothing but text."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise _Untranslatable
    return "".join(_texts(content))


def _texts(parts: list[Any]) -> Iterable[str]:
    for part in parts:
        kind = mapping(part).get("type")
        if kind not in ("text", "input_text", "output_text") or not isinstance(part.get("text"), str):
            raise _Untranslatable
        yield part["text"]


def _of_responses(body: dict[str, Any]) -> Chat:
    if body.get("previous_response_id") or body.get("conversation"):
        raise _Untranslatable
    messages: list[Chat] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": _text(body["instructions"])})
    given = body.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    for item in dicts(given):
        _item(item, messages)
    return _request(body, messages, [_function(tool, "parameters") for tool in dicts(body.get("tools"))])


def _item(item: dict[str, Any], messages: list[Chat]) -> None:
    kind = item.get("type", "message")
    if kind == "reasoning":
        return
    if kind == "function_call":
        _said(messages, "", [_call(item.get("call_id"), item.get("name"), text_of(item.get("arguments")))])
    elif kind == "function_call_output":
        output = {"role": "tool", "tool_call_id": text_of(item.get("call_id")), "content": _text(item.get("output"))}
        messages.append(output)
    elif kind != "message":
        raise _Untranslatable
    elif item.get("role") == "assistant":
        _said(messages, _text(item.get("content")), [])
    else:
        messages.append({"role": text_of(item.get("role")), "content": _text(item.get("content"))})


def _of_messages(body: dict[str, Any]) -> Chat:
    if body.get("thread"):
        raise _Untranslatable
    messages: list[Chat] = []
    if body.get("system"):
        messages.append({"role": "system", "content": _text(body["system"])})
    for message in dicts(body.get("messages")):
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else dicts(content)
        if message.get("role") == "assistant":
            _assistant(blocks, messages)
        else:
            _user(blocks, messages)
    return _request(body, messages, [_function(tool, "input_schema") for tool in dicts(body.get("tools"))])


def _assistant(blocks: list[dict[str, Any]], messages: list[Chat]) -> None:
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    texts = [block for block in blocks if block.get("type") not in ("tool_use", "thinking", "redacted_thinking")]
    calls = [_call(use.get("id"), use.get("name"), json.dumps(use.get("input", {}))) for use in uses]
    _said(messages, _text(texts), calls)


def _user(blocks: list[dict[str, Any]], messages: list[Chat]) -> None:
    rest = []
    for block in blocks:
        if block.get("type") == "tool_result":
            identity = text_of(block.get("tool_use_id"))
            messages.append({"role": "tool", "tool_call_id": identity, "content": _text(block.get("content"))})
        else:
            rest.append(block)
    if rest:
        messages.append({"role": "user", "content": _text(rest)})
