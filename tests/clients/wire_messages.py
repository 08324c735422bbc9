"""The scripted model's answers as Messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.clients.script import MODEL, BreakingOff, Call, Failing, Part, Text, Thinking, pieces

USAGE = {
    "input_tokens": 31,
    "cache_creation_input_tokens": 8,
    "cache_read_input_tokens": 16,
    "cache_creation": {"ephemeral_5m_input_tokens": 8, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 17,
    "service_tier": "standard",
}


def whole(parts: Sequence[Part], number: int, request: dict[str, Any]) -> dict[str, Any]:
    """One answer in one piece."""
    told = [part for part in parts if isinstance(part, Text | Thinking | Call)]
    content = [_block(part, number, index) for index, part in enumerate(told)]
    return _frame(number, request) | {"content": content, "stop_reason": _stop_reason(parts)}


def events(parts: Sequence[Part], number: int, request: dict[str, Any]) -> Iterator[bytes]:
    """One answer as it streams."""
    for event in _story(parts, number, request):
        data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        yield f"event: {event['type']}\ndata: {data}\n\n".encode()


def _story(parts: Sequence[Part], number: int, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    opening = _frame(number, request) | {"usage": USAGE | {"output_tokens": 1}}
    yield {"type": "message_start", "message": opening}
    for index, part in enumerate(parts):
        if isinstance(part, Failing):
            yield {"type": "error", "error": {"type": "overloaded_error", "message": part.message}}
            return
        if isinstance(part, BreakingOff):
            raise ConnectionError
        empty = {"text": "", "thinking": "", "signature": "", "input": {}}
        block = _block(part, number, index)
        start = block | {name: value for name, value in empty.items() if name in block}
        yield {"type": "content_block_start", "index": index, "content_block": start}
        if index == 0:
            yield {"type": "ping"}
        for delta in _deltas(part):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    usage = {"output_tokens": 17, "input_tokens": 31, "cache_read_input_tokens": 16, "cache_creation_input_tokens": 8}
    delta = {"stop_reason": _stop_reason(parts), "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": usage}
    yield {"type": "message_stop"}


def _deltas(part: Text | Thinking | Call) -> Iterator[dict[str, Any]]:
    if isinstance(part, Text):
        yield from ({"type": "text_delta", "text": piece} for piece in pieces(part.text))
    elif isinstance(part, Thinking):
        yield from ({"type": "thinking_delta", "thinking": piece} for piece in pieces(part.text))
        yield {"type": "signature_delta", "signature": part.signature}
    else:
        yield {"type": "input_json_delta", "partial_json": ""}
        yield from ({"type": "input_json_delta", "partial_json": piece} for piece in pieces(part.json, 5))


def _block(part: Text | Thinking | Call, number: int, index: int) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Thinking):
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    return {"type": "tool_use", "id": f"toolu_{number}_{index}", "name": part.name, "input": part.arguments}


def _stop_reason(parts: Sequence[Part]) -> str:
    return "tool_use" if any(isinstance(part, Call) for part in parts) else "end_turn"


def _frame(number: int, request: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": request.get("model", MODEL),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": USAGE,
    }
