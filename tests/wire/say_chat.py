"""Answers in the words of the Chat Completions API."""

from __future__ import annotations

import json
from typing import Any

from tests.wire.answers import CALL, CUSTOM, REASONING, TEXT, Answer, Part, interleaved

PARTS = frozenset({TEXT, REASONING, CALL, CUSTOM})


def request(*said: str, stream: bool = True, **more: Any) -> bytes:
    messages = [{"role": "user", "content": text} for text in said or ("hello",)]
    return json.dumps({"model": "m", "messages": messages, "stream": stream, **more}).encode()


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "logprobs": None, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}


def payloads(answer: Answer) -> list[Any]:
    calls = answer.calls
    spoken = interleaved(answer, lambda part, _: _part(part, calls.index(part) if part in calls else 0))
    usage = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": _usage(answer)}
    return [
        chunk({"role": "assistant", "content": ""}),
        *spoken,
        chunk({}, _reason(answer)),
        usage,
        "[DONE]",
    ]


def _part(part: Part, index: int) -> list[Any]:
    if part.kind == TEXT:
        return [chunk({"content": piece}) for piece in part.pieces]
    if part.kind == REASONING:
        return [chunk({"reasoning_content": piece}) for piece in part.pieces]
    kind, field = ("function", "arguments") if part.kind == CALL else ("custom", "input")
    first = {"index": index, "id": part.id, "type": kind, kind: {"name": part.name, field: ""}}
    more = [{"index": index, kind: {field: piece}} for piece in part.pieces]
    return [chunk({"tool_calls": [fragment]}) for fragment in [first, *more]]


def body(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": _joined(answer, TEXT) or None, "refusal": None}
    if reasoning := _joined(answer, REASONING):
        message["reasoning_content"] = reasoning
    if answer.calls:
        message["tool_calls"] = [_call(part) for part in answer.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(answer)}
    return {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": _usage(answer)}


def _call(part: Part) -> dict[str, Any]:
    kind, field = ("function", "arguments") if part.kind == CALL else ("custom", "input")
    return {"id": part.id, "type": kind, kind: {"name": part.name, field: part.whole}}


def _joined(answer: Answer, kind: str) -> str:
    return "".join(part.whole for part in answer.parts if part.kind == kind)


def _reason(answer: Answer) -> str:
    return "tool_calls" if answer.calls else "stop"


def _usage(answer: Answer) -> dict[str, int]:
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
