"""The scripted model's answers as Chat Completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.clients.script import CREATED, MODEL, BreakingOff, Call, Failing, Part, Text, Thinking, pieces

USAGE = {
    "prompt_tokens": 31,
    "completion_tokens": 17,
    "total_tokens": 48,
    "prompt_tokens_details": {"cached_tokens": 16, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 4, "accepted_prediction_tokens": 0},
}


def call_id(number: int, index: int) -> str:
    return f"call_{number}_{index}"


def whole(parts: Sequence[Part], number: int, request: dict[str, Any]) -> dict[str, Any]:
    """One answer in one piece."""
    calls = [part for part in parts if isinstance(part, Call)]
    thoughts = "".join(part.text for part in parts if isinstance(part, Thinking))
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(part.text for part in parts if isinstance(part, Text)) or None,
        "refusal": None,
        "annotations": [],
    }
    if thoughts:
        message["reasoning_content"] = thoughts
    if calls:
        message["tool_calls"] = [
            {"id": call_id(number, i), "type": "function", "function": {"name": call.name, "arguments": call.json}}
            for i, call in enumerate(calls)
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls" if calls else "stop"}
    return _frame(number, request, "chat.completion", [choice]) | {"usage": USAGE}


def events(parts: Sequence[Part], number: int, request: dict[str, Any]) -> Iterator[bytes]:
    """One answer as it streams, ending in `[DONE]`."""
    with_usage = bool((request.get("stream_options") or {}).get("include_usage"))

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if with_usage else {}
        return _line(_frame(number, request, "chat.completion.chunk", [choice]) | usage | {"obfuscation": "x8Kq"})

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    index = 0
    for part in parts:
        if isinstance(part, Failing):
            yield _line({"error": {"message": part.message, "type": "server_error", "param": None, "code": "overload"}})
            return
        if isinstance(part, BreakingOff):
            raise ConnectionError
        yield from (chunk(delta) for delta in _deltas(part, number, index))
        index += isinstance(part, Call)
    yield chunk({}, "tool_calls" if index else "stop")
    if with_usage:
        yield _line(_frame(number, request, "chat.completion.chunk", []) | {"usage": USAGE, "obfuscation": ""})
    yield b"data: [DONE]\n\n"


def _deltas(part: Text | Thinking | Call, number: int, index: int) -> Iterator[dict[str, Any]]:
    if isinstance(part, Text):
        yield from ({"content": piece} for piece in pieces(part.text))
    elif isinstance(part, Thinking):
        yield from ({"reasoning_content": piece} for piece in pieces(part.text))
    else:
        function = {"name": part.name, "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call_id(number, index), "type": "function", "function": function}]}
        for piece in pieces(part.json):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _frame(number: int, request: dict[str, Any], kind: str, choices: list[Any]) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{number}",
        "object": kind,
        "created": CREATED + number,
        "model": request.get("model", MODEL),
        "service_tier": "default",
        "system_fingerprint": "fp_1",
        "choices": choices,
    }


def _line(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
