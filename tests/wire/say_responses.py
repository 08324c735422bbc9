"""Answers in the words of the Responses API."""

from __future__ import annotations

import json
from typing import Any

from tests.wire.answers import CALL, CUSTOM, PROVIDER, REASONING, TEXT, Answer, Part, interleaved

PARTS = frozenset({TEXT, REASONING, CALL, CUSTOM, PROVIDER})


def request(*said: str, stream: bool = True, **more: Any) -> bytes:
    items = [{"role": "user", "content": text} for text in said or ("hello",)]
    return json.dumps({"model": "m", "input": items, "stream": stream, **more}).encode()


def payloads(answer: Answer) -> list[Any]:
    begun = {**body(answer), "status": "in_progress", "output": [], "usage": None}
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *interleaved(answer, _part),
        {"type": "response.completed", "response": body(answer)},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _part(part: Part, index: int) -> list[dict[str, Any]]:
    item = _item(part, index)
    opened = _item(Part(part.kind, (), part.name, part.id), index) | {"status": "in_progress"}
    at = {"item_id": item["id"], "output_index": index}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": opened},
        *({**event, **at} for event in _within(part)),
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _within(part: Part) -> list[dict[str, Any]]:
    if part.kind == TEXT:
        return _text(part)
    if part.kind == REASONING:
        return _written("response.reasoning_summary_text", part, "text", summary_index=0)
    if part.kind == CALL:
        return _written("response.function_call_arguments", part, "arguments")
    if part.kind == CUSTOM:
        return _written("response.custom_tool_call_input", part, "input")
    if part.name.startswith("mcp"):
        return _written("response.mcp_call_arguments", part, "arguments")
    return [{"type": f"response.{part.name}.{state}"} for state in ("in_progress", "searching", "completed")]


def _text(part: Part) -> list[dict[str, Any]]:
    empty = {"type": "output_text", "text": "", "annotations": []}
    written = _written("response.output_text", part, "text", content_index=0, logprobs=[])
    return [
        {"type": "response.content_part.added", "content_index": 0, "part": empty},
        *written,
        {"type": "response.content_part.done", "content_index": 0, "part": {**empty, "text": part.whole}},
    ]


def _written(kind: str, part: Part, field: str, **more: Any) -> list[dict[str, Any]]:
    deltas = [{"type": f"{kind}.delta", "delta": piece, **more} for piece in part.pieces]
    return [*deltas, {"type": f"{kind}.done", field: part.whole, **more}]


def _item(part: Part, index: int) -> dict[str, Any]:
    item = {"id": f"item_{index}", "status": "completed"}
    if part.kind == TEXT:
        content = [{"type": "output_text", "text": part.whole, "annotations": []}] if part.pieces else []
        return item | {"type": "message", "role": "assistant", "content": content}
    if part.kind == REASONING:
        return item | {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": part.whole}] if part.pieces else [],
        }
    if part.kind == CALL:
        return item | {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": part.whole}
    if part.kind == CUSTOM:
        return item | {"type": "custom_tool_call", "call_id": part.id, "name": part.name, "input": part.whole}
    if part.name.startswith("mcp"):
        return item | {"type": "mcp_call", "name": "delete", "server_label": "s", "arguments": part.whole}
    return item | {"type": part.name}


def body(answer: Answer) -> dict[str, Any]:
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "m",
        "error": None,
        "incomplete_details": None,
        "output": [_item(part, index) for index, part in enumerate(answer.parts)],
        "usage": {"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + completion},
    }
