"""The scripted model's answers as Responses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.clients.script import CREATED, MODEL, BreakingOff, Call, Failing, Part, Text, Thinking, pieces

USAGE = {
    "input_tokens": 31,
    "input_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 0},
    "output_tokens": 17,
    "output_tokens_details": {"reasoning_tokens": 4},
    "total_tokens": 48,
}
_ECHOED = ("instructions", "metadata", "previous_response_id", "temperature", "tools", "tool_choice", "top_p")

Event = dict[str, Any]


def whole(parts: Sequence[Part], number: int, request: dict[str, Any]) -> dict[str, Any]:
    """One answer in one piece."""
    output = [_item(part, number, i) for i, part in enumerate(parts) if isinstance(part, Text | Thinking | Call)]
    return _frame(number, request, "completed", output)


def events(parts: Sequence[Part], number: int, request: dict[str, Any]) -> Iterator[bytes]:
    """One answer as it streams: every event is numbered, and exactly one is terminal."""
    for sequence, event in enumerate(_story(parts, number, request)):
        numbered = {"type": event["type"], "sequence_number": sequence} | event
        data = json.dumps(numbered, ensure_ascii=False, separators=(",", ":"))
        yield f"event: {event['type']}\ndata: {data}\n\n".encode()


def _story(parts: Sequence[Part], number: int, request: dict[str, Any]) -> Iterator[Event]:
    output: list[Any] = []
    yield {"type": "response.created", "response": _frame(number, request, "in_progress", [])}
    yield {"type": "response.in_progress", "response": _frame(number, request, "in_progress", [])}
    for index, part in enumerate(parts):
        if isinstance(part, Failing):
            failed = _frame(number, request, "failed", output)
            failed["error"] = {"code": "server_error", "message": part.message}
            yield {"type": "response.failed", "response": failed}
            return
        if isinstance(part, BreakingOff):
            raise ConnectionError
        done = _item(part, number, index)
        yield {"type": "response.output_item.added", "output_index": index, "item": _opening(done)}
        at = {"item_id": done["id"], "output_index": index}
        yield from (at | event for event in _inside(part, done))
        yield {"type": "response.output_item.done", "output_index": index, "item": done}
        output.append(done)
    yield {"type": "response.completed", "response": _frame(number, request, "completed", output)}


def _inside(part: Text | Thinking | Call, done: dict[str, Any]) -> Iterator[Event]:
    if isinstance(part, Text):
        at = {"content_index": 0}
        yield at | {"type": "response.content_part.added", "part": done["content"][0] | {"text": ""}}
        for piece in pieces(part.text):
            yield at | {"type": "response.output_text.delta", "delta": piece, "logprobs": [], "obfuscation": "x8Kq"}
        yield at | {"type": "response.output_text.done", "text": part.text, "logprobs": []}
        yield at | {"type": "response.content_part.done", "part": done["content"][0]}
    elif isinstance(part, Thinking):
        at = {"summary_index": 0}
        yield at | {"type": "response.reasoning_summary_part.added", "part": {"type": "summary_text", "text": ""}}
        for piece in pieces(part.text):
            yield at | {"type": "response.reasoning_summary_text.delta", "delta": piece}
        yield at | {"type": "response.reasoning_summary_text.done", "text": part.text}
        yield at | {"type": "response.reasoning_summary_part.done", "part": done["summary"][0]}
    else:
        for piece in pieces(part.json):
            yield {"type": "response.function_call_arguments.delta", "delta": piece, "obfuscation": "x8Kq"}
        yield {"type": "response.function_call_arguments.done", "name": part.name, "arguments": part.json}


def _item(part: Text | Thinking | Call, number: int, index: int) -> dict[str, Any]:
    mark = f"{number}_{index}"
    if isinstance(part, Text):
        content = {"type": "output_text", "annotations": [], "logprobs": [], "text": part.text}
        head = {"id": f"msg_{mark}", "type": "message", "status": "completed"}
        return head | {"content": [content], "role": "assistant"}
    if isinstance(part, Thinking):
        summary = [{"type": "summary_text", "text": part.text}]
        return {"id": f"rs_{mark}", "type": "reasoning", "summary": summary, "encrypted_content": part.signature}
    head = {"id": f"fc_{mark}", "type": "function_call", "status": "completed"}
    return head | {"arguments": part.json, "call_id": f"call_{mark}", "name": part.name}


def _opening(done: dict[str, Any]) -> dict[str, Any]:
    """The item as it is announced: nothing in it yet."""
    if done["type"] == "message":
        return done | {"status": "in_progress", "content": []}
    if done["type"] == "reasoning":
        return done | {"summary": []}
    return done | {"status": "in_progress", "arguments": ""}


def _frame(number: int, request: dict[str, Any], status: str, output: list[Any]) -> dict[str, Any]:
    defaults = {"metadata": {}, "temperature": 1.0, "tools": [], "tool_choice": "auto", "top_p": 1.0}
    echoed = {name: request.get(name, defaults.get(name)) for name in _ECHOED}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": CREATED + number,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": request.get("model", MODEL),
        "output": list(output),
        "parallel_tool_calls": request.get("parallel_tool_calls", True),
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": request.get("store", True),
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "truncation": "disabled",
        "usage": USAGE if status == "completed" else None,
        "user": None,
    } | echoed
